"""The hub's lane table: eight lanes, as the public worker's own test lists them, and what this registry has of it."""

from __future__ import annotations

from tensorhub_contracts.lanes.hub_table import HUB_TABLE, split_by_table
from tensorhub_contracts.registry.names import parse_lane
from tensorhub_contracts.registry.registry import load_registry

#: In the order of the worker's `test_known_execution_lanes_stable`.
OF_THE_WORKER = [
    "fp8-w8a8-dynamic+compiled",
    "nvfp4-w4a4-static+compiled",
    "svdq-fp4-w4a4+eager",
    "svdq-int4-w4a4+eager",
    "bf16-w16a16+compiled",
    "bf16-w16a16+eager",
    "fp8-w8a16+compiled",
    "fp8-w8a16+eager",
]

#: What the worker's own test refuses.
REFUSED_BY_THE_WORKER = [
    "fp8-w8a8-dynamic+eager",
    "nvfp4-w4a4-static+eager",
    "svdq-fp4-w4a4+compiled",
    "fp8-w8a32+eager",
    "FP8-w8a16+eager",
]


def test_the_table_is_that_of_the_worker() -> None:
    assert sorted(OF_THE_WORKER) == sorted(HUB_TABLE)
    assert split_by_table([*REFUSED_BY_THE_WORKER, *OF_THE_WORKER]) == (tuple(OF_THE_WORKER), tuple(REFUSED_BY_THE_WORKER))


def test_the_registry_has_every_lane_of_the_table_and_others() -> None:
    ours = {f"{body}+{execution}" for body, lane in load_registry().lanes.items() for execution in lane.executions}
    assert ours > HUB_TABLE
    assert {"fp8-w8a8-dynamic+eager", "fp8-w8a32+compiled"} <= ours - HUB_TABLE
    assert all(str(parse_lane(lane)) == lane for lane in HUB_TABLE)

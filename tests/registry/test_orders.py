"""The order of the registry's tables decides on nothing: ranks put lanes in order, and the longest end of a name wins."""

from __future__ import annotations

import random

import pytest

from tensorhub_contracts.registry.contract import Payload, SidecarName
from tensorhub_contracts.registry.registry import load_registry, parse_registry
from tensorhub_contracts.registry.sidecar_names import SidecarNames
from tests.support.registry_texts import Table, changed, shipped, to_toml

#: Each ends in all that stand before it, and neither order of the alphabet is that of their lengths.
ENDS = ("_x", "y_x", "zy_x", "azy_x", "bazy_x", "xbazy_x", "cxbazy_x")


@pytest.mark.parametrize("seed", range(3))
def test_lanes_stand_in_the_order_of_their_ranks(seed: int) -> None:
    def shuffle(tables: Table) -> None:
        random.Random(seed).shuffle(tables["lane"])

    registry = parse_registry(to_toml(changed(shipped(), shuffle)))
    assert list(registry.lanes) == list(load_registry().lanes)
    assert [lane.rank for lane in registry.lanes.values()] == sorted(lane.rank for lane in registry.lanes.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_longest_end_of_a_name_wins_wherever_it_stands(seed: int) -> None:
    ends = list(ENDS)
    random.Random(seed).shuffle(ends)
    sidecars = tuple(SidecarName(end, "weight-scale", ("",), "a test") for end in ends)
    names = SidecarNames(sidecars, tuple(Payload(end, "a test") for end in ends))
    for end in ENDS:
        name = f"layers.0.k{end}"
        assert names.primary_suffix(name) == end
        found = names[name.rpartition(".")[2]]
        assert found is not None
        assert found.suffix == end
    assert names.primary_suffix("layers.0.weight") == ".weight"
    assert names.primary_suffix("layers.0.wei_ght") == ""

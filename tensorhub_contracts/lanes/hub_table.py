"""The hub's lane table: the lanes that a hub and its workers know, which is closed on their side.

Source: `KNOWN_BODIES` of the public worker, `models/execution_lanes.py` of `cozy-creator/python-gen-worker`, which keeps the table byte for
byte as the hub does. A reader of theirs refuses any other lane, so that lanes beyond the table stand in a list of their own. The table
belongs to the derivation: another table is another `DERIVATION`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Eager lanes of 8 and of 4 bits are not among them: the hub has not measured those.
HUB_TABLE: Final = frozenset(
    {
        "fp8-w8a8-dynamic+compiled",
        "nvfp4-w4a4-static+compiled",
        "svdq-fp4-w4a4+eager",
        "svdq-int4-w4a4+eager",
        "bf16-w16a16+compiled",
        "bf16-w16a16+eager",
        "fp8-w8a16+compiled",
        "fp8-w8a16+eager",
    }
)


def split_by_table(lanes: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lanes that the hub's table has and those beyond it, each in the order in which they are given."""
    listed = tuple(lanes)
    return tuple(lane for lane in listed if lane in HUB_TABLE), tuple(lane for lane in listed if lane not in HUB_TABLE)

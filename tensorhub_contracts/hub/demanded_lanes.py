"""A lane as a demand writes it: case and white space around it say nothing, and a slip is answered with what may have been meant."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.registry.names import LaneName, parse_lane
from tensorhub_contracts.registry.registry import load_registry

#: ASCII alone: other letters fold into some of these, and would be taken for them.
_FOLD: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

#: How alike two names must be, of 1: one wrong sign in a lane, and not another body.
_ALIKE: Final = 0.8


def parse_demanded_lane(text: str) -> LaneName:
    """Read a lane, a body or a family (`fp8`, `8bit`) as a caller writes it: `FP8-W8A16+Eager` is `fp8-w8a16+eager`.

    Raises `Refusal` (`lane-malformed`), with the lane that may have been meant.
    """
    try:
        return parse_lane(text.translate(_FOLD).strip(string.whitespace))
    except Refusal as refusal:
        (violation,) = refusal.violations
        meant = lane_that_was_meant(text, _known_names())
        remedy = with_suggestion(meant, violation.remedy)
        raise Refusal([attrs.evolve(violation, object=text, found=repr(text), remedy=remedy)]) from None


def lane_that_was_meant(text: str, names: Iterable[str]) -> str:
    """Return the one of some names that a slip comes closest to, or nothing: a name that the lane table has is no slip."""
    import difflib  # only for a slip

    folded = text.translate(_FOLD).strip(string.whitespace)
    if folded in set(_known_names()):
        return ""
    return next(iter(difflib.get_close_matches(folded, list(dict.fromkeys(names)), n=1, cutoff=_ALIKE)), "")


def with_suggestion(meant: str, remedy: str = "", *, code: str = "") -> str:
    """Return a remedy, by default what the list says of a code, with the lane that may have been meant before it."""
    remedy = remedy or explanations()[code].remedy
    return f"Did you mean {meant}? {remedy}" if meant else remedy


def names_that_cover(lanes: Iterable[str]) -> Iterator[str]:
    """Yield lanes, and each body and family that covers one of them."""
    for lane in lanes:
        name = parse_lane(lane)
        yield from (lane, name.body, name.family, name.bit_family)


def _known_names() -> Iterator[str]:
    table = load_registry().lanes
    return names_that_cover(f"{body}+{execution}" for body, lane in table.items() for execution in lane.executions)

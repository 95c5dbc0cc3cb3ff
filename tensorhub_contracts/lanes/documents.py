"""The lanes of an image in writing: the record as JSON, and the comparison of an image with what was recorded for it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

from tensorhub_contracts.documents import document_json, malformed, read_document
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.lanes.hub_table import HUB_TABLE
from tensorhub_contracts.lanes.image_lanes import DERIVATION, DecoderLanes, ImageLanes, lanes_digest, lanes_facts
from tensorhub_contracts.lanes.toml_blocks import lanes_blocks, lanes_toml
from tensorhub_contracts.registry.names import parse_handle, parse_lane


def lanes_json(lanes: ImageLanes) -> str:
    """Return the record as JSON with two spaces of indentation, ended by a newline: one spelling for one record."""
    return document_json(lanes)


def read_lanes(text: str | bytes, *, name: str = "lanes.json") -> ImageLanes:
    """Read a record from JSON.

    Raises `Refusal`: `document-malformed` for what is not such a record or is one that no derivation writes,
    `lanes-digest` if its digest is not that of its facts: somebody changed it.
    """
    remedy = "Take the file that `tensorhub lanes --output json` wrote in the image."
    expected = "the lanes of an image (`tensorhub schema lanes`)"
    lanes = read_document(text, ImageLanes, name=name, what=expected, remedy=remedy)
    faults = "; ".join(_faults(lanes))
    if faults:
        raise malformed(name, "lanes of the grammar, each of one decoder and with a floor", faults, remedy)
    digest = lanes_digest(lanes)
    if lanes.digest != digest:
        raise Refusal([Violation(code="lanes-digest", object=name, expected=f"{digest}, that of its facts", found=lanes.digest)])
    return lanes


def _faults(lanes: ImageLanes) -> Iterator[str]:
    """Yield what a derivation never writes: a lane that two serve for one contract, one without a floor, a handle that is none."""
    if lanes.derivation != DERIVATION:
        yield f"derivation {lanes.derivation!r}, and this release compares {DERIVATION}"
    served = [(entry.contract, lane) for entry in lanes.contracts for lane in entry.all_lanes]
    yield from (f"{lane} of {contract} has two decoders" for contract, lane in dict.fromkeys(served) if served.count((contract, lane)) > 1)
    yield from (f"lane {lane} stands more than once" for lane in dict.fromkeys(lanes.all_lanes) if lanes.all_lanes.count(lane) > 1)
    listing: tuple[ImageLanes | DecoderLanes, ...] = (lanes, *lanes.contracts)
    for each in listing:
        yield from (f"lane {lane} is in lanes, and not in the hub's lane table" for lane in each.lanes if lane not in HUB_TABLE)
        yield from (
            f"lane {lane} is beyond the table, and in the hub's lane table" for lane in each.lanes_beyond_table if lane in HUB_TABLE
        )
    for lane in lanes.all_lanes:
        try:
            if not parse_lane(lane).execution:
                yield f"lane {lane} has no execution"
        except Refusal:
            yield f"lane {lane!r} is not well formed"
    for place, entry in enumerate(lanes.contracts):
        try:
            parse_handle(entry.contract)
        except Refusal:
            yield f"contracts[{place}].contract {entry.contract!r} is not a handle"
        yield from (f"contracts[{place}].lanes: {lane} is not among the lanes" for lane in entry.all_lanes if lane not in lanes.all_lanes)
        bodies = dict.fromkeys(lane.partition("+")[0] for lane in entry.all_lanes)
        yield from (f"contracts[{place}].floors: none is stated for {body}" for body in bodies if body not in entry.floors)


def differences(lanes: ImageLanes, recorded: str, *, name: str) -> tuple[Violation, ...]:
    """Return how an image differs from what was recorded for it; nothing if it does not.

    `recorded` is the text of a JSON record or of a TOML file with an `[execution_lanes]` block, and perhaps a
    `[decode_set]` block: which blocks there are is the file's business. Free text and counts may differ. Raises
    `Refusal` for a text that is neither.
    """
    if name.endswith(".toml"):
        here = tomllib.loads(lanes_toml(lanes))
        blocks = lanes_blocks(recorded, name)
        return tuple(
            violation
            for key, block in blocks.items()
            for violation in _differing(_without_reasons(block), _without_reasons(here[key]), f"[{key}] of {name}")
        )
    then = read_lanes(recorded, name=name)
    if then.digest == lanes.digest:
        return ()
    return tuple(_differing(lanes_facts(then), lanes_facts(lanes), name))


def _without_reasons(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "excluded_modules": [{"module": each.get("module")} for each in block.get("excluded_modules", ())]}


def _differing(then: dict[str, Any], now: dict[str, Any], name: str) -> Iterator[Violation]:
    """Yield a violation for each thing that is in one record and not in the other."""
    for key in dict.fromkeys((*then, *now)):
        before, after = _items(then.get(key)), _items(now.get(key))
        gone = [each for each in before if each not in after]
        new = [each for each in after if each not in before]
        if before != after:
            expected = ", ".join(gone) or ("the same, in another order" if not new else "nothing more")
            found = ", ".join(new) or ("another order" if not gone else "nothing in its place")
            yield Violation(code="lanes-differ", object=f"{key} of {name}", expected=expected, found=found)


def _items(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [each if isinstance(each, str) else json.dumps(each, sort_keys=True, ensure_ascii=False) for each in values]

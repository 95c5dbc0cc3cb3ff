"""The lanes of an image as the TOML blocks of a worker's lock file: `[execution_lanes]`, and `[decode_set]` beside it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.lanes.image_lanes import Excluded, ImageLanes
from tensorhub_contracts.registry.digests import canonical_json

#: How the second block is made; it says in other words what the first one does.
DECODE_SET: Final = "tensorhub.decode-set@1"

#: The blocks, and their lists of tables.
BLOCKS: Final = {
    "execution_lanes": ("contracts", "excluded_modules"),
    "decode_set": ("rules", "contracts", "unregistered", "excluded_modules"),
}

_REMEDY: Final = "Take the file that `tensorhub lanes --output toml` wrote in the image."


def lanes_toml(lanes: ImageLanes) -> str:
    """Return both blocks, ended by a newline."""
    return "\n".join([*_execution_lanes(lanes), "", *_decode_set(lanes)]) + "\n"


def lanes_blocks(text: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the blocks of a TOML file: `[execution_lanes]`, and `[decode_set]` if it is there; raises `Refusal` for a file without."""
    found = "no such table"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        document, found = {}, str(error)
    except RecursionError:
        document, found = {}, "nested too deeply"
    blocks = {block: document[block] for block in BLOCKS if block in document}
    if "execution_lanes" not in blocks or not all(_well_formed(block, BLOCKS[key]) for key, block in blocks.items()):
        raise Refusal(
            [Violation(code="document-malformed", object=name, expected="a TOML file with [execution_lanes]", found=found, remedy=_REMEDY)]
        )
    return blocks


def _well_formed(block: Any, lists: Iterable[str]) -> bool:
    return isinstance(block, dict) and all(
        isinstance(block.get(key, []), list) and all(isinstance(each, dict) for each in block.get(key, [])) for key in lists
    )


def _execution_lanes(lanes: ImageLanes) -> Iterator[str]:
    yield "[execution_lanes]"
    yield f"derivation = {_text(lanes.derivation)}"
    yield f"lanes = {_texts(lanes.lanes)}"
    yield f"lanes_beyond_table = {_texts(lanes.lanes_beyond_table)}"
    yield from _array(
        "contracts",
        [
            f"contract = {_text(each.contract)}, decoder = {_text(each.decoder)}, lanes = {_texts(each.lanes)}, "
            f"lanes_beyond_table = {_texts(each.lanes_beyond_table)}, composes_lora = {_truth(each.composes_lora)}"
            for each in lanes.contracts
        ],
    )
    yield from _array("excluded_modules", _excluded(lanes.excluded))


def _decode_set(lanes: ImageLanes) -> Iterator[str]:
    """Yield the rules: a decoder with the lane bodies that it serves of the hub's table.

    How the names of a checkpoint's tensors are built is no fact of a contract here, and each decoder is registered.
    """
    rules = [_Rule(each.contract, each.decoder, _bodies(each.lanes), each.composes_lora) for each in lanes.contracts]
    yield "[decode_set]"
    yield f"derivation = {_text(DECODE_SET)}"
    yield f"digest = {_text(_digest(rules))}"
    yield from _array(
        "rules",
        [
            f"rule = {_text(each.rule)}, decoder = {_text(each.decoder)}, serves = {_texts(each.serves)}, "
            f"composes_lora = {_truth(each.composes_lora)}"
            for each in rules
        ],
    )
    yield from _array(
        "contracts", [f"contract = {_text(each.rule)}, decoder = {_text(each.decoder)}, key_topologies = []" for each in rules]
    )
    yield "unregistered = []"
    yield from _array("excluded_modules", _excluded(lanes.excluded))


@attrs.frozen
class _Rule:
    rule: str
    decoder: str
    serves: tuple[str, ...]
    composes_lora: bool


def _bodies(lanes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({lane.partition("+")[0] for lane in lanes}))


def _digest(rules: Iterable[_Rule]) -> str:
    """Return `sha256:…` over canonical JSON of the derivation and the rules."""
    facts = {"derivation": DECODE_SET, "rules": [attrs.asdict(each) for each in rules]}
    return "sha256:" + hashlib.sha256(canonical_json(facts)).hexdigest()


def _excluded(excluded: Iterable[Excluded]) -> list[str]:
    return [f"module = {_text(each.module)}, reason = {_text(f'{each.code}: {each.reason}')}" for each in excluded]


def _array(key: str, tables: list[str]) -> list[str]:
    return [f"{key} = [", *(f"  {{ {each} }}," for each in tables), "]"] if tables else [f"{key} = []"]


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _text(text: str) -> str:
    """Write a TOML string: JSON's escapes are TOML's, and DEL needs one more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(texts: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_text, texts)) + "]"

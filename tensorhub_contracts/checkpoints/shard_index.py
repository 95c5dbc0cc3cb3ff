"""The index of a sharded checkpoint: which tensor lies in which shard, agreed with the headers both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import Duplicates, JsonFault, brief, parse_json

#: `model-00001-of-00163.safetensors`: what comes before, the number, how many there are.
NUMBERED = re.compile(r"(.*)-(\d{1,9})-of-(\d{1,9})\.safetensors\Z", re.DOTALL)


def parse_index(text: bytes, *, name: str, files: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the index's map from tensor name to shard name, and the shards, each proved to be a plain file name.

    `files` are the names of the `.safetensors` files beside the index; it is read faster when they are all it names.
    Raises `Refusal` with every fault: JSON that is not strict, a tensor listed twice, a shard that is not a file name
    ending in `.safetensors` (judged by its text alone: the shards of a hub cache are links).
    """
    weight_map = _parse_fast(text, tuple(files))
    violations: list[Violation] = []
    if weight_map is None:
        weight_map = _parse_strict(text, name, violations)
    shards = dict.fromkeys(weight_map.values())
    violations += (
        Violation(
            code="index-path",
            object=f"{tensor} -> {_quoted(shard)}",
            expected="a plain file name that ends in .safetensors",
            found=_why(shard),
            shard=name,
        )
        for tensor, shard in (weight_map.items() if any(map(_why, shards)) else ())
        if _why(shard)
    )
    if violations:
        raise Refusal(violations)
    return weight_map, sorted(shards)


def stated_size(text: bytes) -> int | None:
    """Return the bytes that an index says all tensors take together, its `total_size`, or None if it does not say."""
    index = parse_json(text)
    metadata = index.get("metadata") if isinstance(index, dict) else None
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return size if type(size) is int else None


def disagreements(
    weight_map: Mapping[str, str], shard_of: Mapping[str, str], holders: Mapping[str, tuple[str, ...]], *, name: str
) -> list[Violation]:
    """Return a violation for each tensor on which the index and the headers disagree.

    `shard_of` maps every tensor to a shard whose header has it; `holders` maps those that lie in several shards to
    all of them: the index decides which counts.
    """
    violations = []
    for tensor, shard in weight_map.items():
        held = holders.get(tensor) or ((shard_of[tensor],) if tensor in shard_of else ())
        if shard not in held:
            found = f"it in {', '.join(held)}" if held else "it in no shard"
            violations.append(
                Violation(code="index-tensor-missing", object=tensor, expected=f"the tensor in {shard}", found=found, shard=name)
            )
    for tensor, shard in shard_of.items():
        if tensor not in weight_map:
            found = f"it in {shard} and not in the index"
            violations.append(
                Violation(
                    code="index-tensor-unlisted",
                    object=tensor,
                    expected="every tensor of a shard in the index",
                    found=found,
                    shard=name,
                )
            )
    return violations


def _parse_fast(text: bytes, files: tuple[str, ...]) -> dict[str, str] | None:
    """Return the map if it is certainly right: no escapes, so each entry ends in `.safetensors"` and none is repeated.

    Decoding shard names as literals gives one string for each shard, not one for each of 90,000 tensors.
    """
    if not files or b"\\" in text or text[:1] != b"{" or not _is_utf8(text):
        return None
    shard_names: Any = Literal[files]  # a type made from what lies in the folder
    weights: Any = ("weight_map", dict[str, shard_names])
    try:
        index: Any = msgspec.defstruct("Index", [weights, ("metadata", msgspec.Raw, msgspec.Raw())], forbid_unknown_fields=True)
        weight_map: dict[str, str] = msgspec.json.decode(text, type=index).weight_map
    except (msgspec.MsgspecError, RecursionError):
        return None
    once = text.count(b'"weight_map"') == 1 and text.count(b'"metadata"') <= 1
    return weight_map if weight_map and once and text.count(b'.safetensors"') == len(weight_map) else None


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_strict(text: bytes, name: str, violations: list[Violation]) -> dict[str, str]:
    def refuse(code: str, obj: str, expected: str, found: str, remedy: str = "") -> None:
        violations.append(Violation(code=code, object=obj, expected=expected, found=found, remedy=remedy, shard=name))

    try:
        index: Any = parse_json(text)
    except JsonFault as fault:
        from tensorhub_contracts.checkpoints.file_kinds import LONG_SAMPLE, recognize  # only for what is no JSON

        kind = recognize(text[:LONG_SAMPLE]) if text[:1] != b"{" else None
        found = f"{kind.words}; {fault}" if kind else str(fault)
        refuse("index-json", name, "strict UTF-8 JSON", found, kind.remedy if kind else "")
        return {}
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        refuse("index-json", name, "an object with a weight_map that names at least one tensor", "no such weight_map")
        return {}
    for each in (index, weight_map):
        for key in each.repeated if isinstance(each, Duplicates) else ():
            refuse("index-json", key, "each key once", "the key more than once")
    for tensor, shard in weight_map.items():
        if type(shard) is not str:
            refuse("index-path", tensor, "a plain file name that ends in .safetensors", brief(shard))
    return {tensor: shard for tensor, shard in weight_map.items() if type(shard) is str}


def _why(shard: str) -> str:
    """Return why a shard's name is not a plain file name, or nothing if it is one."""
    if not shard:
        return "an empty name"
    if "/" in shard or "\\" in shard or "\0" in shard or shard in (".", ".."):
        return f"a path, {_quoted(shard)}"
    if not shard.endswith(".safetensors"):
        return f"{_quoted(shard)}, which does not end in .safetensors"
    return ""


def _quoted(shard: str) -> str:
    """Return a name in quotes, cut where no file system has a longer one."""
    return repr(shard[:1_000])


def forgotten_numbers(shards: Iterable[str], name: str) -> list[Violation]:
    """Return a violation for each numbered family of which the index `name` never mentions a shard."""
    violations = []
    families: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        if matched := NUMBERED.match(shard):
            families.setdefault((matched[1], int(matched[3])), set()).add(int(matched[2]))
    for (base, count), numbers in families.items():
        absent = missing_numbers(numbers, count)
        if absent:
            found = f"no tensor in number {absent}"
            violations.append(
                Violation(
                    code="index-shard-unlisted",
                    object=f"{base}-*-of-{count}",
                    expected=f"all {count} shards",
                    found=found,
                    shard=name,
                )
            )
    return violations


def missing_numbers(numbers: set[int], count: int) -> str:
    """Return which of 1 to `count` are missing, in words, naming at most ten; empty if none is."""
    total = count - len(numbers & set(range(1, min(count, 1_000_000) + 1)))
    if total <= 0:
        return ""
    named = [str(number) for number in range(1, min(count, len(numbers) + 11) + 1) if number not in numbers][:10]
    return ", ".join(named) + (f" and {total - len(named):,} more" if total > len(named) else "")

"""The rule of docs/checkpoints.md for integers, booleans and complex numbers, written from the page. Imports nothing of the product."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.checkpoint_files import size_in_bytes

Geometry = tuple[str, tuple[int, ...]]

#: The page says that the words are in this file.
WORDS = {
    key: set(words) for key, words in tomllib.loads((Path(__file__).parents[2] / "registry.toml").read_text("utf-8"))["bookkeeping"].items()
}
SCALING = re.compile(r"scal|absmax|amax|zero|scb|codebook|quant|lut|centroid|biases")
BITS = {"U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64}


def module_of(name: str) -> str:
    return name.rpartition(".")[0]


def leaf_of(name: str) -> str:
    return name.rpartition(".")[2]


def words_of(name: str) -> set[str]:
    return set(re.findall("[a-z]+", leaf_of(name).lower()))


def is_bookkeeping(name: str, tensors: Mapping[str, Geometry], floats: list[str], beside_weight: Callable[[str], bool]) -> bool:
    """Whether the page explains a tensor that is no float and in no unit; `floats` could scale it if they lie beside it."""
    dtype, shape = tensors[name]
    said, elements, near = words_of(name), math.prod(shape), beside_weight(name)
    table, mask = bool(said & WORDS["tables"]), bool(said & WORDS["masks"])
    if "weight" in leaf_of(name).lower():
        return False
    if elements <= 1:
        return BITS.get(dtype) == 64 or not near
    if near:
        return False
    if dtype == "BOOL":
        return True
    if dtype == "C64":
        return len(shape) == 1 or bool(said & WORDS["rotations"])
    if BITS[dtype] == 64 and (table or mask):
        return table or not _has_scale(name, tensors, floats)
    if _has_scale(name, tensors, floats):
        return False
    if BITS[dtype] == 64:
        return len(shape) < 2 or _nameless_tables_are_small(tensors)
    if BITS[dtype] > 8:
        return table or mask or max(shape) == elements
    if mask:
        return True
    if len(shape) == 1:
        return bool(said & WORDS["tokenizers"]) or not any(segment.isdigit() for segment in name.split("."))
    return len(shape) > 2 and shape[-1] == shape[-2] and math.prod(shape[:-2]) == 1


def _nameless_tables_are_small(tensors: Mapping[str, Geometry]) -> bool:
    sizes = {name: size_in_bytes(*each) for name, each in tensors.items()}
    named = WORDS["tables"] | WORDS["masks"]
    tables = [name for name, (dtype, shape) in tensors.items() if BITS.get(dtype) == 64 and len(shape) > 1 and not words_of(name) & named]
    return sum(sizes[name] for name in tables) <= max(1 << 20, sum(sizes.values()) // 16)


def _has_scale(name: str, tensors: Mapping[str, Geometry], floats: list[str]) -> bool:
    """Whether a float in its module, or below it, is called like a scale; one number scales only what shares its other words."""
    for each in floats:
        if module_of(each) in (name, module_of(name)) and SCALING.search(leaf_of(each).lower()):
            others = {word for word in words_of(each) if not SCALING.search(word)}
            if math.prod(tensors[each][1]) != 1 or others <= words_of(name):
                return True
    return False

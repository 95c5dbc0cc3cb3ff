"""Compares decoded tensors with numbers, bit for bit, without a package that computes with them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

from tensorhub_contracts.checkpoints.geometry import BITS
from tensorhub_contracts.testing.numbers import encoded, values
from tensorhub_contracts.testing.sample_units import SampleUnit, StoredTensor


def by_name(decoded: Iterable[tuple[str, Any, str]]) -> dict[str, Any]:
    """Return what a decoder yields as tensors by their names."""
    return {name: tensor for name, tensor, _ in decoded}


def first_of_each_form(units: Iterable[SampleUnit]) -> Iterator[SampleUnit]:
    """Yield a unit of each form of the contract."""
    seen: set[str] = set()
    for unit in units:
        if unit.form not in seen:
            seen.add(unit.form)
            yield unit


def moved_by_one(unit: SampleUnit, role: str) -> SampleUnit:
    """Return a unit whose elements of one tensor are moved by one place."""
    tensor = unit.tensors[role]
    width = BITS[tensor.dtype] // 8
    moved = StoredTensor(tensor.dtype, tensor.shape, tensor.data[-width:] + tensor.data[:-width])
    return SampleUnit(unit.form, unit.names, {**unit.tensors, role: moved}, unit.symbols)


def first_difference(stored: StoredTensor, numbers: list[float]) -> str:
    """Say where decoded bytes are not the numbers, rounded to their dtype; NaN is NaN, whatever its payload."""
    wanted = encoded(stored.dtype, numbers)
    width = BITS[stored.dtype] // 8
    if len(wanted) != len(stored.data):
        return f"{len(stored.data)} bytes, expected {len(wanted)}"
    if wanted == stored.data:
        return ""
    found = stored.values
    for place, number in enumerate(numbers):
        here = slice(place * width, (place + 1) * width)
        if stored.data[here] != wanted[here] and not (math.isnan(number) and math.isnan(found[place])):
            return f"element {place} is {found[place]!r} ({stored.data[here].hex()}), expected {number!r} ({wanted[here].hex()})"
    return ""


def in_dtype(dtype: str, tensor: StoredTensor) -> StoredTensor:
    """Return a stored tensor with its values rounded to another dtype."""
    return StoredTensor(dtype, tensor.shape, encoded(dtype, values(tensor.dtype, tensor.data)))


_NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "uint8": "U8", "float8_e4m3fn": "F8_E4M3"}


def stored_tensor(tensor: Any) -> StoredTensor:
    """Return the bytes of a tensor of torch, or of anything that numpy can view."""
    library = importlib.import_module(type(tensor).__module__.partition(".")[0])
    dtype = str(tensor.dtype).rpartition(".")[2]
    if library.__name__ == "torch":
        data = tensor.detach().cpu().contiguous().reshape(-1).view(library.uint8).numpy().tobytes()
    else:
        data = tensor.tobytes()
    return StoredTensor(_NAMES.get(dtype, dtype), tuple(tensor.shape), data)

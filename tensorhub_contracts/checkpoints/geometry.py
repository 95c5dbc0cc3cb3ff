"""One tensor as a header describes it, and what tensors of one dtype and shape share."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Dtype = Literal[
    "BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
    "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
]  # fmt: skip  # one line a width family reads better than one line a name

BITS: Final[dict[str, int]] = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
}

#: Floating-point values of 16 bits or more: the dtypes of tensors that nothing scales.
WIDE_FLOAT: Final = frozenset({"F16", "BF16", "F32", "F64"})

#: Floating-point values below 16 bits: a tensor of this dtype is quantized, whatever its name.
NARROW_FLOAT: Final = frozenset({"F4", "F6_E2M3", "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})

#: Bytes that hold packed elements when a sidecar or a payload name says so, and plain integers otherwise.
PACKED: Final = frozenset({"U8", "I8"})

#: What a contract's element may be: a dtype, or elements of four bits that the format stores packed in bytes.
ELEMENTS: Final = frozenset({*BITS, "F4_E2M1", "I4"})

_LIMIT = 2**64

#: So many dimensions of a shape are written out: more than torch and NumPy have.
MOST_DIMENSIONS: Final = 64


def byte_length(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes a tensor takes, or None if no file can hold it.

    `shape` is in elements. None means that the product of the dimensions or its width in bits does not fit in 64 bits,
    or that sub-byte elements do not fill whole bytes: safetensors refuses the same.
    """
    bits = BITS[dtype]
    elements = 1
    for dimension in shape:
        elements *= dimension
        if dimension >= _LIMIT or elements >= _LIMIT:
            return None
    bits *= elements
    if bits >= _LIMIT or bits % 8:
        return None
    return bits // 8


class TensorEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A tensor's entry in a header: dtype, shape in elements, offsets in bytes from the start of the payload.

    A header of 90,000 entries is decoded straight into it.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Geometry(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A dtype, a shape in elements, and the bytes that such a tensor takes; None if no file can hold it.

    A checkpoint has tens of thousands of tensors and some dozens of geometries, so that tensors of one geometry share
    one object, and identity tells them apart: what is slow is to fetch cold objects from memory.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    byte_length: int | None


class Geometries(dict[tuple[Dtype, tuple[int, ...]], Geometry]):
    """Makes one geometry for each dtype and shape, and remembers it."""

    def __missing__(self, key: tuple[Dtype, tuple[int, ...]]) -> Geometry:
        dtype, shape = key
        possible = min(shape, default=0) >= 0
        self[key] = made = Geometry(dtype, shape, byte_length(dtype, shape) if possible else None)
        return made


def are_sizes(value: object) -> bool:
    """Whether a value is a list of whole numbers from 0 to 2^64 - 1; looked at as a whole: a shape may have millions."""
    return type(value) is list and set(map(type, value)) <= {int} and (not value or (min(value) >= 0 and max(value) < _LIMIT))


def write_shape(shape: tuple[int, ...] | list[int]) -> str:
    """Write a shape for people and reports: `[576, 7168]`, `[]` for a scalar; of one that has very many dimensions the first."""
    if len(shape) > MOST_DIMENSIONS:
        return f"[{', '.join(map(str, shape[:MOST_DIMENSIONS]))}, ...] ({len(shape):,} dimensions)"
    return "[" + ", ".join(map(str, shape)) + "]"

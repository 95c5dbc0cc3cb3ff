"""Stored bytes as Python floats and back: written from the formats' definitions, and sharing nothing with any decoder.

A Python float is an IEEE binary64, which holds every value of the formats here and every product of two of them that
are no wider than F32 exactly, so that each rounding below is the only one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

#: Dtype to the code of the `struct` module, for the formats that it knows.
_STRUCT: Final = {"F32": "f", "F16": "e", "F64": "d", "I8": "b", "U8": "B", "I16": "h", "I32": "i", "I64": "q", "U16": "H", "U32": "I"}

#: Exponent bits, mantissa bits and whether the top exponent means infinity, of the formats that it does not.
_SMALL_FLOATS: Final = {"F8_E4M3": (4, 3, False), "F8_E5M2": (5, 2, True)}


def values(dtype: str, data: bytes) -> list[float]:
    """Return the elements of stored bytes, little-endian. Raises ValueError for a dtype that has no such reading."""
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return list(struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves))))
    if dtype in _SMALL_FLOATS:
        table = [_small_float(code, *_SMALL_FLOATS[dtype]) for code in range(256)]
        return [table[code] for code in data]
    if dtype == "F8_E8M0":
        return [math.nan if code == 255 else math.ldexp(1.0, code - 127) for code in data]
    if dtype not in _STRUCT:
        raise ValueError(f"no reading of {dtype} as numbers")
    code = _STRUCT[dtype]
    return list(map(float, struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)))


def _small_float(code: int, exponent_bits: int, mantissa_bits: int, has_infinity: bool) -> float:
    """Decode one byte: sign, exponent, mantissa; E4M3 (OCP FN) has NaN at the top code alone and no infinity."""
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = (code >> mantissa_bits) & (2**exponent_bits - 1)
    mantissa = code & (2**mantissa_bits - 1)
    sign = -1.0 if code & 0x80 else 1.0
    if exponent == 2**exponent_bits - 1:
        if has_infinity:
            return sign * math.inf if mantissa == 0 else math.nan
        if mantissa == 2**mantissa_bits - 1:
            return math.nan
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(2**mantissa_bits + mantissa, exponent - bias - mantissa_bits)


def rounded_to_f32(value: float) -> float:
    """Return the F32 nearest to a value, ties to even, infinity above the greatest."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def encoded(dtype: str, numbers: Sequence[float]) -> bytes:
    """Return F32 values rounded to nearest even as BF16, F16 or F32 bytes; NaN becomes the quiet NaN without payload."""
    if dtype == "F32":
        return struct.pack(f"<{len(numbers)}f", *numbers)
    if dtype == "BF16":
        return struct.pack(f"<{len(numbers)}H", *map(_bf16, numbers))
    return b"".join(map(_f16, numbers))


def _bf16(value: float) -> int:
    if math.isnan(value):
        return 0x7FC0
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def _f16(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, value))

"""E4M3, BF16 and the fused multiply-add in F32, for references: from `ml_dtypes` and exact arithmetic, never from a kernel's own helper."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Codes = NDArray[np.uint8]

#: The largest finite E4M3 value, and the two codes that are no number.
LARGEST = 448.0
NAN_CODES = (0x7F, 0xFF)


def decode_e4m3(codes: Codes) -> Floats:
    """Return the F32 values of E4M3 codes, exactly; the two NaN codes give NaN."""
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def encode_e4m3(values: Floats) -> Codes:
    """Round F32 values to the nearest E4M3 code, ties to even, what lies beyond 448 to 448."""
    return np.clip(values, -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def round_to_bf16(values: Floats) -> Floats:
    """Round F32 values to BF16, to nearest even, and return them as F32."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def bf16_bits(values: Floats) -> NDArray[np.uint16]:
    """Return the 16 bits of each F32 value rounded to BF16."""
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def fused_multiply_add(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return a · b + c rounded once to F32, as C's `fmaf` does.

    The product of two F32 values is exact in F64. Its sum with c is not, and rounding that to F64 and then to F32 would round twice. So
    the F64 sum is rounded to odd: Knuth's TwoSum gives the error exactly, and where there is one, an even result gives way to its odd
    neighbour on the other side of the exact value. Rounding that to F32 is correct, as F64 has more than two bits more than F32
    (Boldo and Melquiond, 2008). No argument may be infinite or NaN.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    from_addend = total - product
    error = (product - (total - from_addend)) + (addend - from_addend)
    bits = np.ascontiguousarray(total).view(np.int64)
    inexact_and_even = (error != 0) & ((bits & 1) == 0)
    away_from_zero = (error > 0) == (total > 0)
    to_odd = np.where(inexact_and_even, np.where(away_from_zero, 1, -1), 0)
    return (bits + to_odd).view(np.float64).astype(np.float32)

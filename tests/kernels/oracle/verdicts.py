"""Whether an answer is right: bit for bit where the order of sums is specified, by a stated tolerance elsewhere. Needs numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: An element may be off by half a unit in the last place of BF16, and by this much of the sum of the sizes of all that was added for it.
#: w8a16: F32 sums in an order of the hardware's choice, in steps of 8 to 16 products that matrix units may truncate.
#: w8a8: on sm_89 matrix units sum products of E4M3 with 14 bits inside a block of 128, and never across blocks.
TOLERANCES = {"w8a16": 2.0**-18, "w8a8": 2.0**-10}


@dataclass(frozen=True)
class Judgement:
    """`worst` is the largest error as a multiple of what is tolerated (w8a32: of one unit in the last place), `detail` a sentence."""

    passed: bool
    worst: float
    detail: str


def judge(lane: str, answer: NDArray[Any], expected: NDArray[Any], magnitude: NDArray[Any] | None) -> Judgement:
    """Judge an answer [m, n] of a lane: F32, or BF16 as its 16 bits.

    `expected` is F32 (w8a32) or F64; `magnitude` is the sum of the sizes of the terms of each element, absent for w8a32.
    """
    values = as_values(answer)
    if values.shape != expected.shape:
        return Judgement(False, float("inf"), f"shape {values.shape}, expected {expected.shape}")
    if lane == "w8a32":
        return _judge_bits(values, expected)
    assert magnitude is not None, lane
    accumulation = TOLERANCES[lane] * magnitude.astype(np.float64)
    allowed = accumulation + _half_unit_of_bf16(np.abs(expected) + accumulation)
    error = np.abs(values.astype(np.float64) - expected)
    return _judgement(~(error <= allowed), _ratio(error, allowed), values, expected)


def as_values(answer: NDArray[Any]) -> NDArray[np.float32]:
    """Return F32 values of an answer: BF16 comes as its 16 bits, which are the upper half of an F32's."""
    if answer.dtype == np.uint16:
        return (answer.astype(np.uint32) << 16).view(np.float32)
    return answer.astype(np.float32, copy=False)


def same_bits(found: NDArray[Any], expected: NDArray[Any]) -> Judgement:
    """Judge integers or F32 values by their bits: 0 and -0 differ, NaN equals no other NaN than the same one."""
    if found.shape != expected.shape:
        return Judgement(False, float("inf"), f"shape {found.shape}, expected {expected.shape}")
    if found.dtype == np.float32:
        return _judge_bits(found, expected.astype(np.float32, copy=False))
    difference = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    return _judgement(difference != 0, difference.astype(np.float64), found, expected)


def _judge_bits(values: NDArray[np.float32], expected: NDArray[np.float32]) -> Judgement:
    found_bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
    expected_bits = np.ascontiguousarray(expected).view(np.int32).astype(np.int64)
    return _judgement(found_bits != expected_bits, _units_apart(found_bits, expected_bits), values, expected)


def _units_apart(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how many F32 values two bit patterns are apart, across zero too."""
    ordered = [np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) for bits in (left, right)]
    return np.abs(ordered[0] - ordered[1]).astype(np.float64)


def _half_unit_of_bf16(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much rounding to BF16, which has 8 bits, can move a value of a size."""
    return np.ldexp(1.0, np.frexp(size)[1] - 9)


def _ratio(error: NDArray[np.float64], allowed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return error in multiples of what is allowed; anything but zero is infinitely much where nothing is, and so is NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / allowed)
    return np.where(np.isnan(ratio), np.inf, ratio)


def _judgement(wrong: NDArray[np.bool_], worst: NDArray[np.float64], found: NDArray[Any], expected: NDArray[Any]) -> Judgement:
    largest = float(worst.max(initial=0.0))
    if not wrong.any():
        return Judgement(True, largest, f"{wrong.size} elements right, worst {largest:.3g} of what is tolerated")
    where = tuple(int(index) for index in np.unravel_index(np.flatnonzero(wrong)[0], wrong.shape))
    values = f"{float(found[where]):.9g}, expected {float(expected[where]):.9g}"
    return Judgement(False, largest, f"{int(wrong.sum())} of {wrong.size} elements wrong, the first at {where}: {values}")

"""The oracle's problems: weights, scale grids, inputs and biases from a seed, each to tell kinds of mistakes from the right answer."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.oracle.number_formats import NAN_CODES, Codes, Floats, round_to_bf16

BLOCK = 128
ALL_LANES = ("w8a32", "w8a16", "w8a8")

#: What lies in the padding of rows: a NaN, so that an answer that depends on it is no number.
POISON_CODE = 0x7F
POISON_VALUE = np.float32(np.nan)


@dataclass(frozen=True)
class Shape:
    """What a problem is, before its numbers: `members` are the rows of grouped members, `first_row` is where a slice begins."""

    name: str
    distinguishes: str
    mistakes: tuple[str, ...]
    m: int
    n: int
    k: int
    lanes: tuple[str, ...] = ALL_LANES
    grid: str = "block"
    members: tuple[int, ...] = ()
    first_row: int = 0
    scale_dtype: str = "BF16"
    weight_padding: int = 0
    x_padding: int = 0
    bias: bool = False
    positive: bool = False


@dataclass(frozen=True)
class Problem:
    """Numbers: weight [n, weight_stride] codes, scale [rows, columns] or [n], x [m, x_stride] F32 (`x_bf16` the same rounded), bias [n]."""

    shape: Shape
    weight: Codes
    scale: Floats
    scale_rows: NDArray[np.int32] | None
    x: Floats
    x_bf16: Floats
    bias: Floats | None = field(default=None)

    def block_scales(self) -> Floats:
        """Return the scale of each output row and block of K, [n, ceil(k / 128)]."""
        blocks = ceil_divide(self.shape.k, BLOCK)
        if self.shape.grid == "row":
            return np.repeat(self.scale[:, None], blocks, axis=1)
        return self.scale[self.grid_rows()]

    def grid_rows(self) -> NDArray[np.int64]:
        """Return the row of the scale grid of each output row, [n]."""
        if self.scale_rows is not None:
            return self.scale_rows.astype(np.int64)
        return np.arange(self.shape.n) // BLOCK


SHAPES = (
    Shape(
        "whole-blocks",
        "scale direction: a scale multiplies, and its grid is [rows, columns]; the blocks of K have scales of their own",
        (
            *("reciprocal-scale", "transposed-grid", "first-block-of-k", "dequantized-to-bf16"),
            *("one-accumulator", "two-roundings", "descending-k"),
        ),
        m=5, n=140, k=384,
    ),
    Shape(
        "tails",
        "non-square tails: N and K end inside a block, K is no multiple of 16, a block is 128 rows however many there are",
        ("k-tail-dropped", "rows-shared-evenly", "last-row-of-blocks-missing", "unwritten-tail", "reciprocal-scale"),
        m=3, n=197, k=333, lanes=("w8a32", "w8a16"), bias=True,
    ),
    Shape(
        "aligned-tails",
        "non-square tails that 16-byte loads reach: K is a multiple of 16 and ends inside a block",
        (
            *("rows-shared-evenly", "last-block-of-k-missing", "last-row-of-blocks-missing", "first-block-of-k"),
            *("per-token-scale", "not-quantized"),
        ),
        m=7, n=133, k=336,
    ),
    Shape(
        "members",
        "member-local origins: three grouped members of 72, 200 and 41 rows, each with scale rows that begin at its own first row",
        ("origin-ignored", "member-rows-from-zero", "transposed-grid", "reciprocal-scale"),
        m=8, n=313, k=272, members=(72, 200, 41),
    ),
    Shape(
        "slice",
        "the origin of a slice: 100 rows that begin at row 77 of their tensor, so that a block ends after 51 of them",
        ("origin-ignored", "reciprocal-scale"),
        m=2, n=100, k=256, first_row=77,
    ),
    Shape(
        "padded-rows",
        "padded strides: rows of weight and x lie further apart than K, with NaN between; 16-byte loads stay possible",
        ("stride-ignored", "first-block-of-k", "bias-forgotten", "bias-after-rounding"),
        m=6, n=130, k=288, weight_padding=48, x_padding=16, bias=True,
    ),
    Shape(
        "odd-rows",
        "padded strides that no 16-byte load can follow",
        ("stride-ignored", "reciprocal-scale"),
        m=4, n=61, k=160, lanes=("w8a32", "w8a16"), weight_padding=5, x_padding=3,
    ),
    Shape(
        "row-grid",
        "one scale a row of the weight, over all of K",
        ("reciprocal-scale", "row-scale-of-block", "dequantized-to-bf16"),
        m=9, n=150, k=400, grid="row",
    ),
    Shape(
        "f32-scales",
        "scales that BF16 cannot hold",
        ("scale-rounded-to-bf16", "reciprocal-scale"),
        m=4, n=129, k=256, scale_dtype="F32",
    ),
    Shape(
        "tile",
        "more than one tile in M and N, a last tile that is neither full in M nor in N, and four blocks of K, the last one short",
        ("unwritten-tail", "last-block-of-k-missing"),
        m=65, n=132, k=400, bias=True,
    ),
    Shape(
        "long-k",
        "dense accumulation: 64 blocks of K whose terms all have one sign, so that sums that are not kept in F32 drift",
        ("one-accumulator", "bf16-accumulator", "fp8-accumulator", "first-block-of-k"),
        m=2, n=9, k=8192, positive=True,
    ),
    Shape(
        "one-element",
        "M, N and K of 1",
        ("reciprocal-scale", "unwritten-tail"),
        m=1, n=1, k=1, lanes=("w8a32", "w8a16"),
    ),
)  # fmt: skip


class _Numbers:
    """Random numbers by exact arithmetic on PCG64's own bits, which numpy promises to keep the same for a seed."""

    def __init__(self, name: str) -> None:
        self._bits = np.random.PCG64(zlib.crc32(name.encode()))

    def integers(self, count: int, below: int) -> NDArray[np.int64]:
        """Return integers below 2³²."""
        return ((self._bits.random_raw(count) >> np.uint64(32)).astype(np.int64) * below) >> 32

    def bell(self, *shape: int) -> Floats:
        """Return F32 values of about the normal distribution: sums of four integers below 2¹⁶, centred, of full 18 bits."""
        total = sum(self.integers(math.prod(shape), 1 << 16) for _ in range(4))
        return ((total - 131070).astype(np.float32) / np.float32(37837.0)).reshape(shape)


def make_problem(shape: Shape) -> Problem:
    """Return the problem of a shape: the same bytes wherever and whenever it is made."""
    numbers = _Numbers(shape.name)
    x = _padded(_inputs(numbers, shape), shape.x_padding, POISON_VALUE)
    return Problem(
        shape,
        weight=_padded(_weight(numbers, shape), shape.weight_padding, POISON_CODE),
        scale=_scale(numbers, shape),
        scale_rows=_scale_rows(shape),
        x=x,
        x_bf16=round_to_bf16(x),
        bias=numbers.bell(shape.n) * np.float32(100) if shape.bias else None,
    )


def _weight(numbers: _Numbers, shape: Shape) -> Codes:
    """Return every finite code about equally often, as real weights do not, so that each code counts."""
    codes = numbers.integers(shape.n * shape.k, 256).astype(np.uint8)
    codes[np.isin(codes, NAN_CODES)] ^= 0x40
    return (codes & 0x7F if shape.positive else codes).reshape(shape.n, shape.k)


def _inputs(numbers: _Numbers, shape: Shape) -> Floats:
    values = numbers.bell(shape.m, shape.k)
    return np.abs(values) if shape.positive else values


def _scale(numbers: _Numbers, shape: Shape) -> Floats:
    """Return scales between 2⁻⁹ and 2⁻⁶, no two the same: BF16 has 384 values there."""
    count = shape.n if shape.grid == "row" else grid_rows_of(shape) * ceil_divide(shape.k, BLOCK)
    order = np.argsort(numbers.integers(384, 1 << 31), kind="stable")[:count]
    bits = (((127 - 9) << 7) + order).astype(np.uint32) << 16
    if shape.scale_dtype == "F32":
        bits += (1 + numbers.integers(count, 0xFFFE)).astype(np.uint32)
    scale = bits.view(np.float32)
    return scale if shape.grid == "row" else scale.reshape(grid_rows_of(shape), -1)


def grid_rows_of(shape: Shape) -> int:
    """Return the rows of a block grid: of each member's own rows, or of the tensor that a slice was cut from."""
    if shape.members:
        return sum(ceil_divide(rows, BLOCK) for rows in shape.members)
    return ceil_divide(shape.first_row + shape.n, BLOCK)


def _scale_rows(shape: Shape) -> NDArray[np.int32] | None:
    if shape.first_row:
        return ((shape.first_row + np.arange(shape.n)) // BLOCK).astype(np.int32)
    if not shape.members:
        return None
    rows, first = [], 0
    for member in shape.members:
        rows.append(first + np.arange(member) // BLOCK)
        first += ceil_divide(member, BLOCK)
    return np.concatenate(rows).astype(np.int32)


def _padded(rows: NDArray[Any], padding: int, value: Any) -> NDArray[Any]:
    return np.pad(rows, ((0, 0), (0, padding)), constant_values=value) if padding else rows


def ceil_divide(number: int, by: int) -> int:
    return -(-number // by)

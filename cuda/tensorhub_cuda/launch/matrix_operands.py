"""The operands of one projection as plain numbers, and the slices of their rows that one launch each takes. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from tensorhub_cuda.catalog import BLOCK, Kernel

#: The most blocks of a grid along y, of every compute capability.
LARGEST_GRID_Y: Final = 65535


@attrs.frozen
class MatrixOperands:
    """The operands of one projection `y = x W^T + bias`: device pointers (0 for none), strides in elements, sizes.

    The scale of (row, column) of the weight is
    `scale[(scale_rows[row] or row >> scale_row_shift) * scale_stride + column // 128 * scale_column_step]`.
    """

    #: Pointer to the codes, uint8 `[n, k]`.
    weight: int
    #: Pointer to the scales of the weight, F32, contiguous.
    scale: int
    #: Pointer to the row of scales of each row of the weight, int32 `[n]`; 0 where the shift gives it.
    scale_rows: int
    #: Pointer to the activations `[m, k]`: BF16, F32, or codes for w8a8.
    x: int
    #: Pointer to the scales of codes of activations, F32 `[m, ceil(k/128)]`; 0 but for w8a8.
    x_scale: int
    #: Pointer to the bias `[n]`, of y's dtype; 0 for none.
    bias: int
    #: Pointer to the result `[m, n]`, contiguous.
    y: int
    #: Elements from one row of the weight to the next.
    weight_stride: int
    #: Elements from one row of x to the next.
    x_stride: int
    #: Rows of x and y.
    m: int
    #: Rows of the weight, columns of y.
    n: int
    #: Columns of the weight and of x.
    k: int
    #: Scales from one row of the scale grid to the next.
    scale_stride: int
    #: The row of scales of a row of the weight is that row, shifted right by so many bits: 7 for blocks of 128, 0 for rows.
    scale_row_shift: int
    #: Scales from one block of columns to the next: 1 for a grid by block, 0 for one by row.
    scale_column_step: int


#: Bytes of an element of x and of y.
_ITEM_BYTES: Final = {"w8a16": (2, 2), "w8a32": (4, 4), "w8a8": (1, 2)}


def row_slices(m: int, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield the first row and the number of rows of each launch."""
    step = kernel.tile_m * LARGEST_GRID_Y
    yield from ((begin, min(step, m - begin)) for begin in range(0, m, step))


def operand_slices(operands: MatrixOperands, kernel: Kernel) -> Iterable[MatrixOperands]:
    """Return the operands of each launch: they themselves, or slices of their rows where one grid does not reach as far."""
    return (operands,) if operands.m <= kernel.tile_m * LARGEST_GRID_Y else _slices(operands, kernel)


def _slices(operands: MatrixOperands, kernel: Kernel) -> Iterator[MatrixOperands]:
    x_bytes, y_bytes = _ITEM_BYTES[kernel.compute]
    groups = -(-operands.k // BLOCK)
    for begin, rows in row_slices(operands.m, kernel):
        yield attrs.evolve(
            operands,
            x=operands.x + begin * operands.x_stride * x_bytes,
            x_scale=operands.x_scale + begin * groups * 4 if operands.x_scale else 0,
            y=operands.y + begin * operands.n * y_bytes,
            m=rows,
        )

"""The operands of one projection as plain numbers, and how many rows of them one launch takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from tensorhub_cuda.catalog import Kernel

#: Activations that share one scale when they are quantized, along K.
GROUP: Final = 128

#: The most blocks of a grid along y, of every compute capability.
LARGEST_GRID_Y: Final = 65535


@attrs.frozen
class MatrixOperands:
    """The operands of one projection `y = x W^T + bias`: device pointers (0 for none), strides in elements, sizes.

    weight uint8 `[n, k]`, scale F32, scale_rows int32 `[n]`, x `[m, k]` (codes for w8a8, then x_scale F32
    `[m, ceil(k/128)]`), bias `[n]` and y `[m, n]` contiguous. The scale of (row, column) is
    `scale[(scale_rows[row] or row >> scale_row_shift) * scale_stride + column // 128 * scale_column_step]`.
    """

    weight: int
    scale: int
    scale_rows: int
    x: int
    x_scale: int
    bias: int
    y: int
    weight_stride: int
    x_stride: int
    m: int
    n: int
    k: int
    scale_stride: int
    scale_row_shift: int
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
    groups = -(-operands.k // GROUP)
    for begin, rows in row_slices(operands.m, kernel):
        yield attrs.evolve(
            operands,
            x=operands.x + begin * operands.x_stride * x_bytes,
            x_scale=operands.x_scale + begin * groups * 4 if operands.x_scale else 0,
            y=operands.y + begin * operands.n * y_bytes,
            m=rows,
        )

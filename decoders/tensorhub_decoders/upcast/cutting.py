"""Cuts a weight into strips of rows: what one step writes, the next one finds in cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Elements of a strip: its F16 and F32 scratch (6 MB) stays in a second-level cache or close to it.
STRIP_ELEMENTS: Final = 1 << 20

#: Rows and columns of the blocks that decoders and kernels know. It comes from contracts, and never from shapes.
BLOCK: Final = 128


def strips(rows: int, columns: int, *, origin: int = 0, least: int = 1, join_rest: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the first row of each strip and the row after its last: whole block rows, several if they fit, or a part of one.

    Blocks are counted from `origin` rows before the first one. A part of a block row is a power of two of rows high, but
    where a block begins or ends inside the weight; no strip is to be less than `least` rows high, a power of two up to
    `BLOCK`, however wide rows are. The rest of the last block is a strip by itself, unless `join_rest` adds it to the block
    rows before it.
    """
    height = max(1, STRIP_ELEMENTS // max(1, columns * BLOCK)) * BLOCK
    while height > least and height * columns > STRIP_ELEMENTS:
        height //= 2
    begin = 0
    while begin < rows:
        place = origin + begin
        if place % BLOCK or height < BLOCK:
            end = min(begin + min(height, BLOCK), begin + BLOCK - place % BLOCK, rows)
        elif join_rest:
            end = min(begin + height, rows)
        else:
            whole = (rows - begin) // BLOCK * BLOCK
            end = begin + (min(height, whole) or rows - begin)
        yield begin, end
        begin = end

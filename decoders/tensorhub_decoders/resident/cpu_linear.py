"""The projection `x W^T + b` with a weight that stays FP8: upcast strip by strip on the CPU, by a kernel on a device that has one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from tensorhub_decoders.resident.stored_weight import StoredWeight
from tensorhub_decoders.upcast.strips import BLOCK, STRIP_ELEMENTS
from tensorhub_decoders.upcast.workers import for_each_strip


def project_on_cpu(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None) -> torch.Tensor:
    """Return `x W^T + b` in the dtype of `x`, `[..., in]`, with W the rows of all parts.

    Each strip of rows is multiplied as `torch.nn.functional.linear` multiplies: an output element is one sum over
    all of `in`, in the order of that function for as many rows as a strip has.
    """
    heights = [part.weight.shape[0] for part in parts]
    rows, columns = sum(heights), parts[0].weight.shape[1]
    flat = x.reshape(-1, columns)
    y = torch.empty(flat.shape[0], rows, dtype=x.dtype)

    def multiply(begin: int, end: int) -> None:
        with torch.inference_mode(mode=False):  # memory that is kept from call to call, and may be written in either mode
            strip = _scratch.rows(end - begin, columns, x.dtype)
            first = 0
            for part, height in zip(parts, heights, strict=True):
                start, stop = max(begin - first, 0), min(end - first, height)
                if start < stop:
                    part.upcast(start, stop, strip[first + start - begin : first + stop - begin])
                first += height
        y[:, begin:end] = functional.linear(flat, strip, None if bias is None else bias[begin:end].to(x.dtype))

    for_each_strip(multiply, row_strips(rows, columns))
    return y.view(*x.shape[:-1], rows)


def row_strips(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that are upcast and multiplied at a time: whole block rows, as many as make a strip, and at least one.

    How a sum is ordered depends on how many rows are multiplied at once: a weight of one strip is multiplied as a dense one is.
    """
    height = max(1, STRIP_ELEMENTS // max(1, columns * BLOCK)) * BLOCK
    yield from ((begin, min(begin + height, rows)) for begin in range(0, rows, height))


class _Scratch(threading.local):
    """Memory of each thread for one strip of upcast rows."""

    def __init__(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def rows(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Return room for so many rows."""
        size = rows * columns * dtype.itemsize
        if self.bytes.numel() < size:
            self.bytes = torch.empty(max(size, STRIP_ELEMENTS * dtype.itemsize), dtype=torch.uint8)
        return self.bytes[:size].view(dtype).view(rows, columns)


_scratch = _Scratch()

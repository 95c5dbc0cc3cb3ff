"""The projection `x W^T + b` with a weight that stays FP8: upcast strip by strip on the CPU, by a kernel on a device that has one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from tensorhub_decoders.resident.stored_weight import StoredWeight
from tensorhub_decoders.upcast.buffers import scratch
from tensorhub_decoders.upcast.cutting import BLOCK, strips
from tensorhub_decoders.upcast.workers import for_each_strip


def project_on_cpu(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None) -> torch.Tensor:
    """Return `x W^T + b` in the dtype of `x`, `[..., in]`, with W the rows of all parts.

    Each strip of rows is multiplied as `torch.nn.functional.linear` multiplies: an output element is one sum over
    all of `in`, in the order of that function for as many rows as a strip has: a weight of one strip is multiplied as an
    ordinary matrix is.
    """
    heights = [part.weight.shape[0] for part in parts]
    rows, columns = sum(heights), parts[0].weight.shape[1]
    flat = x.reshape(-1, columns)
    y = torch.empty(flat.shape[0], rows, dtype=x.dtype)

    def multiply(begin: int, end: int) -> None:
        with torch.inference_mode(mode=False):  # memory that is kept from call to call, and may be written in either mode
            strip = scratch("upcast rows", (end - begin, columns), x.dtype)
            first = 0
            for part, height in zip(parts, heights, strict=True):
                start, stop = max(begin - first, 0), min(end - first, height)
                if start < stop:
                    part.upcast(start, stop, strip[first + start - begin : first + stop - begin])
                first += height
        y[:, begin:end] = functional.linear(flat, strip, None if bias is None else bias[begin:end].to(x.dtype))

    for_each_strip(multiply, strips(rows, columns, least=BLOCK, join_rest=True))
    return y.view(*x.shape[:-1], rows)

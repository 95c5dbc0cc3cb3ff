"""Times on a GPU by CUDA events over replayed graphs, and the two ceilings that they are compared with, measured in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import attrs
import torch

#: A measurement lasts about this long, and the median of so many is kept.
_MILLISECONDS, _REPEATS = 15.0, 5

#: Working sets are this many times the L2 cache, so that no launch finds its weight there.
_TIMES_L2 = 3


@attrs.frozen
class Ceilings:
    """What this device does at its best: bytes read and written a second by a copy, operations a second by a BF16 matrix product."""

    copy_bytes: float
    bf16_operations: float


def rotations_for(device: torch.device, bytes_each: int) -> int:
    """Return how many copies of an operand to go round, so that together they exceed the L2 cache."""
    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    return max(2, -(-_TIMES_L2 * l2 // bytes_each))


def microseconds(launch: Callable[[int], object], rotations: int) -> float:
    """Return the time of one launch: `launch(i)` uses the i-th set of operands.

    A graph holds one launch for each set, so that the host's time for a launch does not count. All sets are warm in memory, none in L2.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launch(0)
        launch(1 % rotations)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for index in range(rotations):
            launch(index)
    first = _elapsed(graph, 2)
    replays = max(1, min(1000, round(_MILLISECONDS / max(first, 1e-3))))
    return statistics.median(_elapsed(graph, replays) for _ in range(_REPEATS)) * 1000 / rotations


def _elapsed(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    """Return the milliseconds of one replay."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / replays


def measure_ceilings(device: torch.device) -> Ceilings:
    """Copy a GiB, and multiply two BF16 matrices of 8192 rows and columns of random numbers."""
    size = 1 << 30
    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    copy = microseconds(lambda _: target.copy_(source), 2)
    side = 8192
    a, b = (torch.randn(side, side, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = torch.empty_like(a)
    multiply = microseconds(lambda _: torch.mm(a, b, out=product), 2)
    return Ceilings(copy_bytes=2 * size / copy * 1e6, bf16_operations=2 * side**3 / multiply * 1e6)

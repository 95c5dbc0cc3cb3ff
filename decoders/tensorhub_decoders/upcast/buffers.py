"""Memory that is reused: arenas for decoded weights, and scratch of each thread for one strip.

Touching fresh memory page by page costs as much as decoding into it. A few large arenas, in huge pages where the system has
them, stand in place of thousands of tensors; an arena goes back to the system when the last tensor in it is gone. Scratch is
kept from one strip to the next, and for as long as its thread lives.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from typing import Final

import torch

#: The most that one arena takes, unless one tensor alone needs more.
ARENA_BYTES: Final = 256 << 20

#: Where tensors begin: a multiple of a cache line and of every element's size.
ALIGNMENT: Final = 64

_HUGE_PAGE: Final = 2 << 20


class Arenas:
    """Hands out memory for tensors in the order in which they are asked for; `expected` is how much will be asked for."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self._room = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized tensor; not to be called from two threads at once."""
        size = padded(shape, dtype)
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        if self._used + size > self._room.numel():
            self._room, self._used = _arena(max(size, min(ARENA_BYTES, self._left))), 0
        begin = self._used
        self._used += size
        self._left -= size
        count = torch.Size(shape).numel() * dtype.itemsize
        return self._room[begin : begin + count].view(dtype).view(shape)


def padded(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Return how many bytes of an arena a tensor takes."""
    size = torch.Size(shape).numel() * dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def _arena(size: int) -> torch.Tensor:
    """Return fresh memory of at least so many bytes, zero until it is written."""
    if size < _HUGE_PAGE:
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: the same memory, in small ones
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class _Scratch(threading.local):
    """What a thread holds for each use and dtype."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, torch.dtype], torch.Tensor] = {}


_scratch = _Scratch()


def scratch(use: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized matrix in memory that this thread keeps for one use, and hands out again at the next call for it."""
    elements = rows * columns
    held = _scratch.held.get((use, dtype))
    if held is None or held.numel() < elements:
        with torch.inference_mode(mode=False):  # memory that is kept from call to call, and may be written in either mode
            held = _scratch.held[use, dtype] = torch.empty(elements, dtype=dtype)
    return held[:elements].view(rows, columns)

"""Memory for decoded weights: a few large arenas in place of thousands of tensors, in huge pages where the system has them.

Touching fresh memory page by page costs as much as decoding into it. An arena goes back to the system when the last
tensor in it is gone.
"""

from __future__ import annotations

import contextlib
import mmap
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

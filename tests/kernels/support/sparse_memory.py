"""Arrays over address space without memory: what shows a 32-bit offset without gigabytes to hold."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python 3.11 has no name for it


def sparse_array(shape: Sequence[int], dtype: Any, *, pitch: int | None = None) -> np.ndarray[Any, Any]:
    """Return zeros whose rows are `pitch` elements apart; only pages that are written take memory."""
    item = np.dtype(dtype).itemsize
    pitch = shape[-1] if pitch is None else pitch
    rows = math.prod(shape[:-1])
    length = ((rows - 1) * pitch + shape[-1]) * item
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    flat = np.frombuffer(memory, np.uint8).view(dtype)
    return np.lib.stride_tricks.as_strided(flat, tuple(shape), (pitch * item, item)[-len(shape) :])

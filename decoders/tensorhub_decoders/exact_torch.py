"""Makes torch compute as IEEE 754 says in this thread, with the threads that torch shares its work among.

Torch starts those threads once, and they do for good as the thread did that started them: `torch.set_flush_denormal(False)` leaves
them as they are. So they are asked, by a product that they share.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from tensorhub_contracts.exact_arithmetic import exact_arithmetic

#: The elements of an operation that torch gives to one thread at least.
_GRAIN: Final = 1 << 15


@contextmanager
def exact_torch() -> Iterator[None]:
    """Make torch exact in this thread, and leave the thread as it was, whatever is raised.

    Where the threads that torch has for this one are not exact, this thread does their work. Not to be held while a generator
    yields. Raises `FaultError` as `exact_arithmetic` does.
    """
    with exact_arithmetic():
        threads = torch.get_num_threads()
        if _shares_exactly(threads):
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def shared_exactly_before() -> bool:
    """Return whether the threads that torch has for this one are exact, asked once for each number of them: for what runs often.

    This thread must be exact itself: threads that are not there yet are started by the question.
    """
    threads = torch.get_num_threads()
    return _asked.answers[threads] if threads in _asked.answers else _shares_exactly(threads)


def _shares_exactly(threads: int) -> bool:
    if threads == 1:
        return True
    with torch.inference_mode():
        numbers = torch.full((threads * _GRAIN,), 2.0**-126, device="cpu", dtype=torch.float32)
        products = numbers * 0.5  # subnormal
        answer = _asked.answers[threads] = bool((products * 2.0**100 > 0.0).all())
    return answer


class _Asked(threading.local):
    """What the threads that torch has for a thread have answered, by their number."""

    def __init__(self) -> None:
        self.answers: dict[int, bool] = {}


_asked = _Asked()

"""Runs the strips of one weight on all cores: one Python thread a core, each with one torch thread.

A strip is too small to be shared among threads that wait for one another at every step: where another process has a core,
such threads take tens of times as long. Threads that each have a strip of their own do not wait.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

from tensorhub_contracts.exact_arithmetic import become_exact, exact_arithmetic
from tensorhub_decoders.exact_torch import shared_exactly_before


def for_each_strip(work: Callable[[int, int], None], parts: Iterable[tuple[int, int]]) -> None:
    """Call `work(begin, end)` for every strip, on as many cores as `torch.get_num_threads()` says; raises what `work` raises.

    The calling thread does the work itself if there is one strip or one thread, and if it is a worker itself: a worker that
    waited for others would block them. Gradients are not recorded; inference mode in the workers is that of the caller.
    Whoever does it computes as IEEE 754 says: one strip goes to a worker if torch's own threads do not.
    """
    strips = list(parts)
    threads = 1 if _here.is_worker else torch.get_num_threads()
    with exact_arithmetic():
        if threads < 2 or (len(strips) < 2 and shared_exactly_before()):
            for begin, end in strips:
                work(begin, end)
        else:
            _in_workers(work, strips, threads)


def _in_workers(work: Callable[[int, int], None], strips: Iterable[tuple[int, int]], threads: int) -> None:
    inference = torch.is_inference_mode_enabled()

    def one(strip: tuple[int, int]) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            work(*strip)

    for _ in _workers(threads, os.getpid()).map(one, strips):
        pass


@functools.lru_cache(maxsize=4)
def _workers(count: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of a process: a child that was forked has none of its parent's."""
    executor = ThreadPoolExecutor(count, "strips", initializer=_become_worker)
    started = threading.Barrier(count)
    list(executor.map(lambda _: started.wait(), range(count)))  # every thread has set its number before ours is set again
    torch.set_num_threads(count)  # torch keeps one number for all threads that are yet to start
    return executor


class _Here(threading.local):
    """Whether this thread is one of the workers: one that waited for the others would wait for itself."""

    is_worker = False


_here = _Here()


def _become_worker() -> None:
    _here.is_worker = True
    become_exact()  # a thread begins as the one that starts it
    torch.get_num_threads()  # torch sets a thread's number to the common one when it is first asked
    torch.set_num_threads(1)

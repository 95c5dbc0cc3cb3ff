"""Interleaved measurement: every round runs each candidate once, in turning order, and ratios are taken within rounds."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import NamedTuple


class Row(NamedTuple):
    """One candidate: its median in milliseconds, and the median over rounds of its ratio to the base."""

    name: str
    milliseconds: float
    ratio: float


def measure(
    candidates: Mapping[str, Callable[[], object]],
    *,
    base: str,
    rounds: int = 7,
    warm_up: int = 1,
    prepare: Callable[[], None] = lambda: None,
    megabytes: int = 384,
) -> list[Row]:
    """Time each candidate `rounds` times, interleaved; `prepare` runs before each and is not timed.

    `megabytes` are touched before each sample (`prime_memory`): at least what a candidate takes afresh.
    """
    names = list(candidates)
    workers = {name: _Worker(candidate) for name, candidate in candidates.items()}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warm_up, rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            prepare()
            prime_memory(megabytes)
            elapsed = workers[name].run()
            if number >= 0:
                seconds[name].append(elapsed)
    for worker in workers.values():
        worker.stop()
    return [
        Row(
            name,
            statistics.median(seconds[name]) * 1e3,
            statistics.median(mine / its for mine, its in zip(seconds[name], seconds[base], strict=True)),
        )
        for name in names
    ]


class _Worker:
    """A process of its own for each candidate, so that what one leaves behind on the heap is not another's burden."""

    def __init__(self, candidate: Callable[[], object]) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(candidate, theirs), daemon=True)
        self._process.start()

    def run(self) -> float:
        self._connection.send(True)
        seconds = self._connection.recv()
        if seconds is None:
            raise RuntimeError("a candidate failed; its traceback is above")
        return float(seconds)

    def stop(self) -> None:
        self._connection.send(False)
        self._process.join()


def _serve(candidate: Callable[[], object], connection: Connection) -> None:
    while connection.recv():
        gc.collect()
        try:
            began = time.perf_counter()
            kept = candidate()
            elapsed = time.perf_counter() - began
        except BaseException:
            connection.send(None)
            raise
        connection.send(elapsed)
        del kept  # freeing what was read is not part of reading it, for any candidate


def prime_memory(megabytes: int) -> None:
    """Touch memory in another process before each sample.

    A virtual machine that gives unused memory back to its host pays for it at the next touch, sometimes seconds; which
    candidate pays would be chance. Afterwards the kernel has that much memory at hand for whoever is next.
    """
    take = f"import mmap; m = mmap.mmap(-1, {megabytes} << 20); m.madvise(mmap.MADV_HUGEPAGE)"
    touch = f"{take}; [m.__setitem__(at, 1) for at in range(0, len(m), 4096)]"
    subprocess.run([sys.executable, "-S", "-c", touch], check=True)


def table(title: str, rows: list[Row], goals: Mapping[str, float] | None = None) -> str:
    """Write rows as a Markdown table; a goal is the most that the ratio may be."""
    base = next(row.name for row in rows if row.ratio == 1.0)
    lines = [f"### {title}", "", f"| | median, ms | ratio to {base} | goal |", "|---|---:|---:|---:|"]
    for row in rows:
        goal = (goals or {}).get(row.name)
        met = "" if goal is None else f"≤ {goal}" + ("" if row.ratio <= goal else " **missed**")
        lines.append(f"| {row.name} | {row.milliseconds:,.1f} | {row.ratio:.4g} | {met} |")
    return "\n".join(lines) + "\n"

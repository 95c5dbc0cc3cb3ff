"""A progress bar on standard error: only on a terminal, and only when the work takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Seconds before a bar appears: most inspections are over by then.
PATIENCE: Final = 1.0


@contextmanager
def header_progress() -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes how many headers have been read and how many there are, or None if nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    bar: Any = None
    task: Any = None

    def advance(done: int, total: int) -> None:
        nonlocal bar, task
        if bar is None:
            if time.monotonic() - started < PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task("reading headers", total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()

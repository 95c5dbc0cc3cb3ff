"""A progress bar on standard error: only on a terminal, and only when the work takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Seconds before a bar appears: most work is over by then.
PATIENCE: Final = 1.0


@contextmanager
def progress_bar(words: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes how much is done and how much there is, or None if nobody watches.

    `words` say what is done; `in_bytes` shows amounts as sizes, with the time that is left.
    """
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
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            sizes = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            bar = Progress(*(sizes if in_bytes else ()), console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(words, total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()

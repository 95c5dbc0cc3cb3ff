"""What both commands need around them: PyTorch, an inspected source, a bar on a terminal, and words for a full disk."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tensorhub_contracts.commands.progress import PATIENCE, header_progress
from tensorhub_contracts.inspection import Inspection
from tensorhub_contracts.inspector import inspect


def require_torch(command: str) -> None:
    """Raise a usage error if PyTorch is not installed: the framework works without it, and what computes does not."""
    if importlib.util.find_spec("torch") is None:
        raise click.UsageError(f"{command} computes with PyTorch, which is not installed: pip install 'tensorhub-contracts[torch]'")


def inspect_source(path: Path) -> Inspection:
    """Return the inspection of the source, with a bar on a terminal; raises a usage error if nothing is there, and `Refusal`."""
    if not os.path.lexists(path):
        raise click.UsageError(f"there is nothing at {path}")
    with header_progress() as progress:
        return inspect(path, progress=progress).require()


@contextmanager
def byte_progress(words: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes how many bytes are done and how many there are, or None if nobody watches."""
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

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(words, total=total)
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()

"""What both commands need around them: PyTorch, and an inspected source."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from tensorhub_contracts.commands.progress import progress_bar
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
    with progress_bar("reading headers") as progress:
        return inspect(path, progress=progress).require()

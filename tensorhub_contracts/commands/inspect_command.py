"""Inspects what a path names: a checkpoint, or each component of a pipeline that holds weights."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click

from tensorhub_contracts.checkpoints.files import exists_or_dangles
from tensorhub_contracts.checkpoints.paths import is_folder, plain_path
from tensorhub_contracts.commands import EXIT_REFUSED, EXIT_UNJUDGED
from tensorhub_contracts.commands.handles import resolve_argument
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.inspection.inspector import inspect, refused
from tensorhub_contracts.inspection.result import Inspection


def exit_of(inspections: Iterable[Inspection]) -> int:
    """Return the exit code that inspections come to: the refused ones come before those that could not be judged."""
    states = {inspection.state for inspection in inspections}
    return EXIT_REFUSED if "refused" in states else EXIT_UNJUDGED if "unjudged" in states else 0


def inspect_path(source: str | os.PathLike[str], component: str, contract: str | None) -> list[Inspection]:
    """Return the inspections of what a path names, with a bar on a terminal; raise a usage error if nothing is there."""
    from tensorhub_contracts.checkpoints.pipeline import weight_components
    from tensorhub_contracts.commands.progress import progress_bar

    path = plain_path(source)
    try:
        if not exists_or_dangles(path):
            from tensorhub_contracts.checkpoints.wrong_places import words_for_nothing_at

            raise click.UsageError(words_for_nothing_at(source))
        names = (component,) if component or not is_folder(path) else weight_components(path) or ("",)
    except (Refusal, OSError):
        names = ("",)  # inspecting the root says what is wrong with it
    if contract is not None:
        try:
            resolve_argument(contract)
        except Refusal as refusal:  # a handle that is well known and cannot be had here is an answer, not a slip
            return [refused(path, name, refusal) for name in names]
    with progress_bar("reading headers") as progress:
        return [inspect(path, name, contract=contract, progress=progress) for name in names]

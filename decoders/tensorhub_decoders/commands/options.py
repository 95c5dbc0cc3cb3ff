"""What both commands need around them: PyTorch, an inspected source, a bar on a terminal, and words for a full disk."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorhub_contracts.checkpoints.files import exists_or_dangles, known_folder
from tensorhub_contracts.checkpoints.pipeline import weight_components
from tensorhub_contracts.checkpoints.wrong_places import words_for_nothing_at
from tensorhub_contracts.commands import EXIT_FAULT
from tensorhub_contracts.commands.progress import progress_bar
from tensorhub_contracts.errors import OutputError, Refusal, Violation
from tensorhub_contracts.inspection.inspector import inspect
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.reports.printable import printable

if TYPE_CHECKING:
    from tensorhub_decoders.converting.convert import ConversionResult


def require_torch(command: str) -> None:
    """Raise a usage error if PyTorch is not installed: the framework works without it, and what computes does not."""
    if importlib.util.find_spec("torch") is None:
        raise click.UsageError(f"{command} computes with PyTorch, which is not installed: pip install 'tensorhub-contracts[torch]'")


def component_option(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--component`; `verb` is what the command does."""
    help_text = f"{verb} this component of a pipeline, and copy the others. Required for a pipeline."
    return click.option("--component", default="", metavar="NAME", help=help_text)


def inspect_source(path: Path, component: str, contract: str | None = None) -> Inspection:
    """Return the inspection of the source, or of a component of it, with a bar on a terminal.

    Raises a usage error if nothing is there, and `Refusal`: for a pipeline without a component, too, wherever its weights lie.
    """
    if not exists_or_dangles(path):
        raise click.UsageError(words_for_nothing_at(path))
    if not component and known_folder(str(path)) and (names := weight_components(path)):
        found = f"a pipeline with the components {', '.join(names)}"
        remedy = "Pick one with --component NAME; to convert weights that lie in its root, give their file as SRC."
        raise Refusal(
            [Violation(code="component-required", object=str(path), expected="one component of a pipeline", found=found, remedy=remedy)]
        )
    with progress_bar("reading headers") as progress:
        return inspect(path, component, contract=contract, progress=progress).require()


def apply(words: str, conversion: Callable[[Callable[[int, int], None] | None], ConversionResult]) -> ConversionResult:
    """Run a conversion with a bar on a terminal; what the operating system refuses is said, and ends the command with a 3."""
    try:
        with progress_bar(words, in_bytes=True) as progress:
            return conversion(progress)
    except OutputError as error:
        click.echo(printable(str(error)), err=True)
        sys.exit(EXIT_FAULT)

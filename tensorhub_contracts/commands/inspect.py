"""`tensorhub inspect`: the main job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from tensorhub_contracts.commands import EXIT_REFUSED
from tensorhub_contracts.commands.handles import HandleType, resolve_argument
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.inspection import Inspection
from tensorhub_contracts.inspector import inspect, refused
from tensorhub_contracts.reports import FORMATS, writer


class _OutputType(click.ParamType[Any]):
    """`FORMAT` or `FORMAT=FILE`."""

    name = "FORMAT[=FILE]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        format_name, equals, file = value.partition("=")
        if format_name not in FORMATS:
            self.fail(f"{format_name!r} is not a format; formats are {', '.join(FORMATS)}", param, ctx)
        if equals and not file:
            self.fail(f"{value!r} names no file after the equals sign", param, ctx)
        return format_name, file

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in FORMATS if name.startswith(incomplete)]


@click.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--component", default="", metavar="NAME", help="Inspect only this component of a pipeline; without it, each that holds weights."
)
@click.option("--contract", type=HandleType(), help="Accept exactly this contract, and refuse every other.")
@click.option(
    "--output",
    "outputs",
    type=_OutputType(),
    multiple=True,
    help=f"Write a report as {', '.join(FORMATS)}: to standard output, or to a file. May be repeated. Default: text.",
)
def command(path: Path, component: str, contract: str | None, outputs: tuple[tuple[str, str], ...]) -> None:
    """Prove which contract the checkpoint at PATH is in, from its headers alone.

    PATH is a folder, a .safetensors file, a snapshot in a hub cache, or the root of a pipeline. No weight byte is
    read. Exits with 0 if every inspected checkpoint is in a contract, with 1 if one is refused, with 2 for wrong usage
    and with 3 for a fault of this tool or of a plugin.
    """
    if not os.path.lexists(path):
        raise click.UsageError(f"there is nothing at {path}")
    outputs = outputs or (("text", ""),)
    if sum(not file for _, file in outputs) > 1:
        raise click.UsageError("only one report can go to standard output; give the others a file, as in json=report.json")
    inspections = _inspect_all(path, component, contract)
    for format_name, file in outputs:
        report = writer(format_name)(inspections).encode("utf-8", "backslashreplace").decode("utf-8")
        if file:
            _write_file(Path(file), click.unstyle(report) if format_name == "text" else report)
        else:
            click.echo(report, nl=False)
    if not all(inspection.accepted for inspection in inspections):
        sys.exit(EXIT_REFUSED)


def _inspect_all(path: Path, component: str, contract: str | None) -> list[Inspection]:
    from tensorhub_contracts.commands.progress import header_progress
    from tensorhub_contracts.pipeline import weight_components

    try:
        names = (component,) if component or not path.is_dir() else weight_components(path) or ("",)
    except Refusal:
        names = ("",)  # inspecting the root says what is wrong with its index
    if contract is not None:
        try:
            resolve_argument(contract)
        except Refusal as refusal:  # a handle that is well known and cannot be had here is an answer, not a slip
            return [refused(path, name, refusal) for name in names]
    with header_progress() as progress:
        return [inspect(path, name, contract=contract, progress=progress) for name in names]


def _write_file(path: Path, report: str) -> None:
    try:
        path.write_text(report, "utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error

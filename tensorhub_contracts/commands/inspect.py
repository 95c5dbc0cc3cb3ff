"""`tensorhub inspect`: the main job."""

from __future__ import annotations

import functools
import sys

import click

from tensorhub_contracts.commands import EXIT_REFUSED
from tensorhub_contracts.commands.handles import HandleType
from tensorhub_contracts.commands.inspect_command import inspect_path
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.reports import FORMATS, writer


@click.command("inspect")
@click.argument("path", type=click.Path())
@click.option(
    "--component", default="", metavar="NAME", help="Inspect only this component of a pipeline; without it, each that holds weights."
)
@click.option("--contract", type=HandleType(), help="Accept exactly this contract, and refuse every other.")
@output_option(FORMATS)
def command(path: str, component: str, contract: str | None, outputs: tuple[Output, ...]) -> None:
    """Prove which contract the checkpoint at PATH is in, from its headers alone.

    PATH is a folder, a .safetensors file, a snapshot in a hub cache, or the root of a pipeline. No weight byte is
    read. Exits with 0 if every inspected checkpoint is in a contract, with 1 if one is refused, with 2 for wrong usage
    and with 3 for a fault of this tool or of a plugin.
    """
    outputs = chosen_outputs(outputs)
    inspections = inspect_path(path, component, contract)
    write_outputs(outputs, {name: functools.partial(writer(name), inspections) for name, _ in outputs})
    if not all(inspection.accepted for inspection in inspections):
        sys.exit(EXIT_REFUSED)

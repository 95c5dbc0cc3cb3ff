"""`tensorhub inspect`: the main job."""

from __future__ import annotations

import functools
import sys

import click

from tensorhub_contracts.commands.handles import HandleType
from tensorhub_contracts.commands.inspect_command import exit_of, inspect_path
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.reports import FORMATS, writer


@click.command("inspect")
@click.argument("path", type=click.Path())
@click.option(
    "--component", default="", metavar="NAME", help="Inspect only this component of a pipeline; without it, each that holds weights."
)
@click.option("--contract", type=HandleType(), help="Accept exactly this contract, and refuse every other.")
@click.option("--decodable", is_flag=True, help="Refuse what no decoder that is installed here reads.")
@output_option(FORMATS)
def command(path: str, component: str, contract: str | None, decodable: bool, outputs: tuple[Output, ...]) -> None:
    """Prove which contract the checkpoint at PATH is in, from its headers alone.

    PATH is a folder, a .safetensors file, a snapshot in a hub cache, or the root of a pipeline. No weight byte is
    read, but for a checkpoint of FP8 values without a scale and without a declaration, of which a few are looked at.
    Exits with 0 if every inspected checkpoint is proved to be in a contract, with 1 if one is refused, with 2 for wrong
    usage, with 3 for a fault of this tool or of a plugin, and with 4 if one could not be read.
    """
    outputs = chosen_outputs(outputs)
    inspections = inspect_path(path, component, contract)
    if decodable:
        from tensorhub_contracts.inspection.decodable import require_decodable  # seldom asked for

        inspections = list(map(require_decodable, inspections))
    write_outputs(outputs, {name: functools.partial(writer(name), inspections) for name, _ in outputs})
    sys.exit(exit_of(inspections))

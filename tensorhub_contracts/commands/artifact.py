"""`tensorhub artifact`: the record of a proved checkpoint."""

from __future__ import annotations

import sys

import click

from tensorhub_contracts.commands.handles import HandleType
from tensorhub_contracts.commands.inspect_command import exit_of, inspect_path
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.hub.artifact import Artifact, artifact_json, record_artifact
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.reports.printable import printable


@click.command("artifact")
@click.argument("path", type=click.Path())
@click.option(
    "--component", default="", metavar="NAME", help="Record only this component of a pipeline; without it, each that holds weights."
)
@click.option("--contract", type=HandleType(), help="Accept exactly this contract, and refuse every other.")
@output_option(("text", "json"))
def command(path: str, component: str, contract: str | None, outputs: tuple[Output, ...]) -> None:
    """Prove the checkpoint at PATH and write the record of it: what a hub stores and compares with images.

    The record holds, for each component, contract, digest, headers digest, units and floors, and is the same wherever
    the checkpoint lies. Exits with 0, with 1 and without a record if the checkpoint is refused (the reasons go to
    standard error), with 2 for wrong usage, with 3 for a fault of this tool or of a plugin, and with 4 if something could
    not be read.
    """
    outputs = chosen_outputs(outputs)
    inspections = inspect_path(path, component, contract)
    try:
        artifact = record_artifact(inspections, installed_registry())
    except Refusal as refusal:
        for violation in refusal.violations:
            click.echo(printable(str(violation)), err=True)
        sys.exit(exit_of(inspections))
    write_outputs(outputs, {"text": lambda: _text(artifact), "json": lambda: artifact_json(artifact)})


def _text(artifact: Artifact) -> str:
    lines = []
    for each in artifact.components:
        lines += [
            click.style(printable(each.component) or "(the root)", bold=True),
            f"  contract  {each.contract}  {each.digest}",
            f"  headers   {each.headers_digest}",
            f"  holds     {each.tensors:,} tensors, {each.units:,} units",
            *(f"  floor     {body}: {'none' if floor == 'none' else f'sm_{floor}'}" for body, floor in each.floors.items()),
        ]
    return "\n".join(lines) + "\n"

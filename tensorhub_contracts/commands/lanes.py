"""`tensorhub lanes`: what this environment can execute, derived."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tensorhub_contracts.commands import EXIT_FAULT, EXIT_REFUSED
from tensorhub_contracts.commands.document_files import document_bytes
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.lanes.derive import derive_execution_lanes
from tensorhub_contracts.lanes.documents import differences, lanes_json
from tensorhub_contracts.lanes.image_lanes import ImageLanes
from tensorhub_contracts.lanes.toml_blocks import lanes_toml
from tensorhub_contracts.plugins.host import installed_plugins
from tensorhub_contracts.reports.printable import printable


@click.command("lanes")
@click.option("--check", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Compare with a record, JSON or TOML.")
@click.option("--strict", is_flag=True, help="Exit with 3 if a plugin is broken: an image should be built whole.")
@output_option(("text", "json", "toml"))
def command(check: Path | None, strict: bool, outputs: tuple[Output, ...]) -> None:
    """Derive the execution lanes of this environment from its installed decoders.

    Needs no GPU, no driver and no torch, and writes the same bytes wherever the same decoders and requirements are
    installed. In a build file: RUN tensorhub lanes --strict --output json=/opt/lanes.json

    Exits with 0, with 1 if no lane is left, if two decoders claim one lane or if --check finds a difference, with 2 for
    wrong usage and with 3 for a fault of this tool or of a plugin.
    """
    outputs = chosen_outputs(outputs) if outputs or check is None else ()
    lanes = derive_execution_lanes()
    found = differences(lanes, document_bytes(check).decode("utf-8", "surrogateescape"), name=str(check)) if check is not None else ()
    writers = {
        "text": lambda: "\n".join(_lines(lanes)) + "\n",
        "json": lambda: lanes_json(lanes),
        "toml": lambda: lanes_toml(lanes),
    }
    write_outputs(outputs, writers)
    for difference in found:
        click.echo(printable(str(difference)), err=True)
    if not all(name == "text" and not file for name, file in outputs):
        click.echo(f"scanned {_scan(lanes)}", err=True)
    if check is not None and not found:
        click.echo(f"as recorded in {check}: {lanes.digest}", err=True)
    if strict and installed_plugins().faulty:
        for plugin in installed_plugins().faulty:
            click.echo(printable(f"{plugin.title} is {plugin.state}: {plugin.reason}"), err=True)
        sys.exit(EXIT_FAULT)
    if not lanes.all_lanes:
        remedies = "".join(f" {each}" for each in dict.fromkeys(excluded.remedy for excluded in lanes.excluded if excluded.remedy))
        click.echo(printable(f"No lane is left: this environment can execute nothing.{remedies}"), err=True)
    if found or not lanes.all_lanes:
        sys.exit(EXIT_REFUSED)


def _scan(lanes: ImageLanes) -> str:
    damaged = f", {lanes.scan.damaged} of them with damaged metadata" if lanes.scan.damaged else ""
    return f"{lanes.scan.distributions} distributions{damaged}: {lanes.scan.plugins} plugins, {len(lanes.all_lanes)} lanes"


def _lines(lanes: ImageLanes) -> Iterator[str]:
    yield f"{click.style('lanes', bold=True)}  {lanes.digest}"
    yield from (f"  {lane}" for lane in lanes.lanes)
    if lanes.lanes_beyond_table:
        yield "lanes beyond the hub's table"
        yield from (f"  {lane}" for lane in lanes.lanes_beyond_table)
    for entry in lanes.contracts:
        yield printable(f"{entry.contract}  {entry.digest}")
        yield printable(f"  decoder   {entry.decoder}  of {entry.distribution} {entry.version}".rstrip())
        for body, floor in entry.floors.items():
            executions = ", ".join(lane.partition("+")[2] for lane in entry.all_lanes if lane.partition("+")[0] == body)
            yield printable(f"  serves    {body} ({executions})  floor {floor if floor == 'none' else f'sm_{floor}'}")
        yield f"  adapters  {'composed' if entry.composes_lora else 'not composed'}"
    for excluded in lanes.excluded:
        what = f"{excluded.contract} " if excluded.contract else ""
        yield printable(f"left out  {what}{excluded.module}: {excluded.code}: {excluded.reason}")
        if excluded.remedy:
            yield printable(f"  remedy    {excluded.remedy}")
    yield f"scanned   {_scan(lanes)}"

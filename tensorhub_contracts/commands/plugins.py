"""`tensorhub plugins`: what is installed, in which state, and from where."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from tensorhub_contracts.commands import EXIT_FAULT
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.plugins.facts import Plugin, Plugins
from tensorhub_contracts.plugins.host import installed_plugins
from tensorhub_contracts.reports.plugins_report import plugins_json
from tensorhub_contracts.reports.printable import printable

_COLOURS = {"loaded": "green", "blocked": "yellow", "broken": "red", "conflict": "red"}


@click.command("plugins")
@click.option("--strict", is_flag=True, help="Exit with 3 if a plugin is broken or in conflict.")
@click.option("--traceback", "tracebacks", is_flag=True, help="Show the traceback of each broken plugin.")
@output_option(("text", "json"))
def command(strict: bool, tracebacks: bool, outputs: tuple[Output, ...]) -> None:
    """List the plugins of this environment: state, provenance, contracts and decoders.

    TENSOR_CONTRACTS_PLUGINS says which may be used, in items between commas: NAME allows a plugin and with it only those
    named, -NAME blocks one, -HANDLE blocks the decoders of a contract, HANDLE=NAME says who decodes a contract that
    several claim. A name is that of a plugin or of its distribution, in any spelling; shipped plugins are used unless
    they are blocked. Exits with 0, with 2 if TENSOR_CONTRACTS_PLUGINS is wrong, and with 3 if nothing is found at all or, with
    --strict, if a plugin is broken or in conflict.
    """
    outputs = chosen_outputs(outputs)
    plugins = installed_plugins()
    write_outputs(outputs, {"text": lambda: "\n".join(_lines(plugins, tracebacks)) + "\n", "json": lambda: plugins_json(plugins)})
    if not plugins.plugins or (strict and (plugins.faulty or any(not conflict.settled for conflict in plugins.lane_conflicts))):
        sys.exit(EXIT_FAULT)


def _lines(plugins: Plugins, tracebacks: bool) -> Iterator[str]:
    for plugin in plugins.plugins:
        yield from _plugin_lines(plugin, tracebacks)
    for conflict in plugins.lane_conflicts:
        claimants = " and ".join(f"{registered.name} of {plugin.title}" for plugin, registered in conflict.claimants)
        answer = f"{conflict.winner} was named" if conflict.settled else "nobody wins until TENSOR_CONTRACTS_PLUGINS names one"
        yield printable(f"{conflict.contract} in {conflict.body} is claimed by {claimants}: {answer}")
    for damaged in plugins.damaged:
        yield printable(f"damaged metadata: {damaged.metadata}: {damaged.reason}")
    count = f"{len(plugins.plugins)} plugin{'' if len(plugins.plugins) == 1 else 's'}"
    yield f"{count} in {plugins.distributions} distributions" + ("" if plugins.plugins else ": not even the shipped ones; no *.dist-info?")


def _plugin_lines(plugin: Plugin, tracebacks: bool) -> Iterator[str]:
    state = click.style(f"{plugin.state:<8}", fg=_COLOURS[plugin.state])
    yield f"{state}  {click.style(printable(plugin.name), bold=True)}  {printable(f'{plugin.distribution} {plugin.version}'.strip())}"
    if plugin.reason:
        yield printable(f"          reason    {plugin.reason}")
    yield printable(f"          from      {plugin.value}" + (f" in {plugin.file}" if plugin.file else ""))
    yield from (printable(f"          owns      {handle}") for handle in plugin.contracts)
    for registered in plugin.decoders:
        declared = registered.declaration
        yield printable(f"          decodes   {declared.contract} in {', '.join(declared.serves)}")
    yield from (printable(f"          note      {note}") for note in plugin.notes)
    if tracebacks:
        yield from (printable(f"          {line}") for line in plugin.traceback.splitlines())

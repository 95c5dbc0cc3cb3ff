"""`tensorhub schema`: JSON Schemas, made from the classes themselves."""

from __future__ import annotations

import json

import click

from tensorhub_contracts.commands.outputs import answer
from tensorhub_contracts.reports.schemas import SCHEMAS, json_schema


@click.command("schema")
@click.argument("name", type=click.Choice(sorted(SCHEMAS)))
def command(name: str) -> None:
    """Print the JSON Schema (2020-12) of a file or a report that this tool reads or writes.

    Exits with 0, and with 2 for a name that has no schema.
    """
    answer(json.dumps(json_schema(name), indent=2))

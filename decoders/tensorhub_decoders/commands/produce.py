"""`tensorhub produce`: quantize an unquantized checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.reports.printable import printable
from tensorhub_decoders.commands.options import apply, component_option, inspect_source, require_torch
from tensorhub_decoders.commands.report import announce, make_report, report_refusal, write_report
from tensorhub_decoders.converting.choose_matrices import vocabulary_matrices
from tensorhub_decoders.converting.produce import plan_production, produce, produced_contracts


@click.command("produce")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("destination", metavar="DST", type=click.Path(path_type=Path))
@click.option("--to", "contract", required=True, type=click.Choice(produced_contracts()), help="The contract that DST is to be in.")
@click.option(
    "--skip", multiple=True, metavar="PATTERN", help="Leave the matrices unquantized whose names match, as in '*embed*'. May be repeated."
)
@click.option("--only", multiple=True, metavar="PATTERN", help="Quantize no matrix but those whose names match. May be repeated.")
@component_option("Quantize")
@output_option(("text", "json"))
def command(
    source: Path,
    destination: Path,
    contract: str,
    skip: tuple[str, ...],
    only: tuple[str, ...],
    component: str,
    outputs: tuple[Output, ...],
) -> None:
    """Quantize the unquantized checkpoint SRC, and write it to the new folder DST.

    Every matrix *.weight is quantized, and for hf.fp8-blockwise@1 every stack of experts, but for what --skip and --only
    leave out: nothing is left unquantized by default, not even an embedding. A checkpoint that is in the contract already keeps
    its units byte for byte, and --only says what else is quantized.

    Of a pipeline, one component is converted, and DST is the pipeline with copies of the others.

    DST is written as DST.partial, and renamed when all of it is proved. The same command goes on where a killed one
    stopped, and the result is the same. Exits with 0, with 1 if SRC or its values are refused or DST is there, with 2
    for wrong usage, and with 3 for a fault of this tool and when the disk is full.
    """
    outputs = chosen_outputs(outputs)
    require_torch("produce")
    try:
        inspected = inspect_source(source, component)
        production = plan_production(inspected, contract, skip, only)
        announce("quantizing", production.plan.steps("quantize"))
        for name in vocabulary_matrices(production.chosen, inspected):
            note = f"note: {name} looks like an embedding or an output head; most releases keep it unquantized, with --skip"
            click.echo(printable(note), err=True)
        produced = apply("quantizing", lambda progress: produce(inspected, production, destination, progress))
    except Refusal as refusal:
        report_refusal(outputs, refusal)
        return
    write_report(outputs, make_report(inspected, production.plan, produced, str(destination)))

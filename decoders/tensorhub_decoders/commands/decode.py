"""`tensorhub decode`: make an unquantized checkpoint of a quantized one."""

from __future__ import annotations

from pathlib import Path

import click

from tensorhub_contracts.commands.handles import HandleType
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option
from tensorhub_contracts.errors import Refusal
from tensorhub_decoders.commands.options import apply, component_option, inspect_source, require_torch
from tensorhub_decoders.commands.report import announce, make_report, report_refusal, write_report
from tensorhub_decoders.converting.decode import decode, decoded_contracts, plan_decoding


@click.command("decode")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("destination", metavar="DST", type=click.Path(path_type=Path))
@click.option("--to", "contract", required=True, type=click.Choice(decoded_contracts()), help="The contract that DST is to be in.")
@click.option("--allow-nan", is_flag=True, help="Keep NaN that the weights of SRC hold. Without it, they are refused.")
@click.option("--contract", "source_contract", type=HandleType(), help="Accept exactly this contract of SRC, and refuse every other.")
@component_option("Decode")
@output_option(("text", "json"))
def command(
    source: Path,
    destination: Path,
    contract: str,
    allow_nan: bool,
    source_contract: str | None,
    component: str,
    outputs: tuple[Output, ...],
) -> None:
    """Decode the quantized checkpoint SRC, and write it to the new folder DST as an unquantized one.

    SRC is in a contract that an installed decoder upcasts, shipped or of a plugin: the one that loading takes decodes it. If
    the contract's reference dequant is known here, each weight is compared with it, bit for bit, before it is written; else
    the report says that nothing was compared. Vectors and scalars keep their dtype; an unquantized matrix
    of another dtype is cast, because an unquantized contract has one. The quantization declaration is removed.

    Of a pipeline, one component is converted, and DST is the pipeline with copies of the others.

    DST is written as DST.partial, and renamed when all of it is proved. The same command goes on where a killed one
    stopped, and the result is the same. Exits with 0, with 1 if SRC or its values are refused or DST is there, with 2
    for wrong usage, and with 3 for a fault of this tool and when the disk is full.
    """
    outputs = chosen_outputs(outputs)
    require_torch("decode")
    try:
        inspected = inspect_source(source, component, source_contract)
        decoding = plan_decoding(inspected, contract, allow_nan=allow_nan)
        announce(f"casting to {decoding.dtype.lower()}, as the units are,", decoding.plan.steps("cast"))
        decoded = apply("decoding", lambda progress: decode(inspected, decoding, destination, progress))
    except Refusal as refusal:
        report_refusal(outputs, refusal)
        return
    write_report(outputs, make_report(inspected, decoding.plan, decoded, str(destination), reference=decoding.reference))

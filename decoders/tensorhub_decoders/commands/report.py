"""What `produce` and `decode` report: on standard error what is about to happen, on standard output what was done."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
import click

from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.commands import EXIT_REFUSED
from tensorhub_contracts.commands.outputs import Output, write_outputs
from tensorhub_contracts.documents import document_json
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.hub.problem import problem_details, problem_json
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import size_in_words

if TYPE_CHECKING:
    from tensorhub_decoders.converting.convert import ConversionResult
    from tensorhub_decoders.converting.plan import ConversionPlan, Step

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@attrs.frozen
class File:
    """A file beside the weights that was not copied."""

    #: Its path below SRC.
    name: str
    #: Why it was not.
    reason: str


@attrs.frozen
class Report:
    """What a conversion did. Of a pipeline, all of this is about one component, but for what was copied or not."""

    #: Where the source lies.
    source: str
    #: The component that was converted, or empty.
    component: str
    #: The contract that the source is in.
    source_contract: str
    #: The digest of its headers.
    source_headers: str
    #: Where the result lies.
    destination: str
    #: The contract that the result is in.
    contract: str
    #: The digest of that contract.
    digest: str
    #: The digest of the result's headers.
    headers: str
    #: The names of the tensors that were quantized.
    quantized: tuple[str, ...]
    #: The names of the weights that were decoded.
    decoded: tuple[str, ...]
    #: The names of the matrices that were cast to another dtype.
    cast: tuple[str, ...]
    #: How many units were there already, and stay as they are.
    units_kept: int
    #: How many tensors were copied.
    copied_tensors: int
    #: The bytes of all tensors of the source.
    bytes_before: int
    #: The bytes of all tensors of the result.
    bytes_after: int
    #: How many shards the result has.
    shards: int
    #: How many of them an earlier run had finished.
    shards_resumed: int
    #: The other components of the pipeline.
    components_copied: tuple[str, ...]
    #: The files beside the weights that were copied, by their paths below SRC and DST.
    files_copied: tuple[str, ...]
    #: Those that were not.
    files_not_copied: tuple[File, ...]
    #: The reference dequant that each decoded weight was compared with, bit for bit; empty if there was nothing to compare it with.
    reference_dequant: str


def make_report(source: Inspection, plan: ConversionPlan, converted: ConversionResult, destination: str, *, reference: str = "") -> Report:
    """Return the report of a conversion that was carried out."""
    before, found = source.checkpoint, converted.inspection.checkpoint
    assert before is not None  # proved contracts have one
    assert found is not None
    names = {action: tuple(step.read["weight"] for step in plan.steps(action)) for action in ("quantize", "decode", "cast", "copy")}
    return Report(
        source=source.path,
        component=source.component,
        source_contract=str(source.contract),
        source_headers=before.headers_digest,
        destination=destination,
        contract=str(converted.inspection.contract),
        digest=str(converted.inspection.digest),
        headers=found.headers_digest,
        quantized=names["quantize"],
        decoded=names["decode"],
        cast=names["cast"],
        units_kept=source.unit_count if source.contract == converted.inspection.contract else 0,
        copied_tensors=len(names["copy"]),
        bytes_before=before.payload_bytes,
        bytes_after=plan.total_size,
        shards=len(plan.shards),
        shards_resumed=converted.resumed,
        components_copied=tuple(plan.others),
        files_copied=converted.companions.copied,
        files_not_copied=tuple(File(*each) for each in converted.companions.left),
        reference_dequant=reference,
    )


def announce(verb: str, steps: Iterable[Step]) -> None:
    """Say on standard error which tensors are about to be changed, those that differ in a number alone together."""
    rows: dict[tuple[str, str], int] = {}
    for step in steps:
        key = (_NUMBER.sub("*", step.read["weight"]), write_shape(step.written["weight"].shape))
        rows[key] = rows.get(key, 0) + 1
    if rows:
        count = sum(rows.values())
        click.echo(f"{verb} {_tensors(count)}:", err=True)
        for (name, shape), count in rows.items():
            click.echo(printable(f"  {name}  {shape}" + (f"  x {count:,}" if count > 1 else "")), err=True)


def write_report(outputs: Iterable[Output], report: Report) -> None:
    """Write the report in the formats that were asked for."""
    writers: Mapping[str, Callable[[], str]] = {
        "text": lambda: "\n".join(_lines(report)) + "\n",
        "json": lambda: document_json(report),
    }
    write_outputs(outputs, writers)


def report_refusal(outputs: Iterable[Output], refusal: Refusal) -> None:
    """Report a refusal and exit: each violation on standard error, or an RFC 9457 problem where JSON was asked for."""
    for violation in refusal.violations:
        click.echo(printable(str(violation)), err=True)
    write_outputs([each for each in outputs if each[0] == "json"], {"json": lambda: problem_json(problem_details(refusal))})
    sys.exit(EXIT_REFUSED)


def _lines(report: Report) -> Iterator[str]:
    yield click.style(printable(report.destination), bold=True)
    if report.component:
        yield printable(f"  component {report.component}")
    yield f"  contract  {click.style(report.contract, fg='green', bold=True)}  {report.digest}"
    yield printable(f"  source    {report.source}, in {report.source_contract}")
    yield f"  headers   {report.headers}"
    changed = {"quantized": report.quantized, "decoded": report.decoded, "cast": report.cast}
    yield from (f"  {what:<9} {_tensors(len(names))}" for what, names in changed.items() if names)
    if report.decoded and not report.reference_dequant:
        yield f"  compared  nothing: no reference formula of {report.source_contract} is known here"
    if report.units_kept:
        yield f"  kept      {report.units_kept:,} units that were there already, byte for byte"
    yield f"  copied    {_tensors(report.copied_tensors)}, byte for byte"
    shards = "1 shard" if report.shards == 1 else f"{report.shards:,} shards"
    resumed = f", {report.shards_resumed:,} of them from an earlier run" if report.shards_resumed else ""
    yield f"  bytes     {size_in_words(report.bytes_before)} before, {size_in_words(report.bytes_after)} now, in {shards}{resumed}"
    if report.components_copied:
        yield printable(f"  others    {', '.join(report.components_copied)}: components, byte for byte")
    files = [name for name in report.files_copied if name.partition("/")[0] not in report.components_copied]
    if files:
        yield printable(f"  files     {', '.join(files)}")
    for file in report.files_not_copied:
        yield printable(f"  left out  {file.name}: {file.reason}")


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count:,} tensors"

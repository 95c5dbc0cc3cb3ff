"""The report for people: the verdict first, then what it rests on, then what headers cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.reports.grid_table import grid_table
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import PrefixRow, ViolationGroup, grid_rows, prefix_rows, size_in_words, violation_groups

_GRIDS_SHOWN = 12
_PREFIXES_SHOWN = 24
_OBJECTS_SHOWN = 3


def write(inspections: Sequence[Inspection]) -> str:
    """Return the text; styles are ANSI codes, which the command line removes where they do not belong."""
    return "\n\n".join("\n".join(_lines(inspection)) for inspection in inspections) + "\n"


def _lines(inspection: Inspection) -> Iterator[str]:
    title = inspection.path + (f" · {inspection.component}" if inspection.component else "")
    yield click.style(printable(title), bold=True)
    if inspection.contract is not None:
        yield f"  contract  {click.style(inspection.contract, fg='green', bold=True)}  {inspection.digest}"
    elif inspection.state == "unjudged":
        yield f"  contract  {click.style('UNJUDGED', fg='yellow', bold=True)}: something could not be read"
    elif inspection.nearest is not None:
        yield f"  contract  {click.style('REFUSED', fg='red', bold=True)}, judged against {inspection.nearest}"
    else:
        yield f"  contract  {click.style('REFUSED', fg='red', bold=True)}"
    prefixes = prefix_rows(inspection)
    yield from _facts(inspection, sum(row.multi_token_prediction for row in prefixes))
    groups = violation_groups(inspection.violations)
    for group in groups:
        yield ""
        yield from _violation(group)
    yield from _tables(inspection, prefixes)
    yield from _bullets("proved from headers", inspection.proved)
    shown = [f"{statement}{_units(units)}" for statement, units in inspection.not_provable]
    yield from _bullets("not shown by headers", shown if inspection.accepted else [])
    yield from _bullets("notes", inspection.notes)
    if groups:
        codes = " ".join(dict.fromkeys(group.code for group in groups))
        yield ""
        yield f"  tensorhub explain {codes}"


def _facts(inspection: Inspection, predicting: int) -> Iterator[str]:
    checkpoint = inspection.checkpoint
    if checkpoint is None:
        return
    payload = sum(shard.file_size for shard in checkpoint.shards)
    shards = "1 shard" if len(checkpoint.shards) == 1 else f"{len(checkpoint.shards):,} shards"
    read = f"{size_in_words(payload)}, of which {size_in_words(checkpoint.bytes_read)} were read"
    yield f"  tensors   {checkpoint.tensor_count:,} in {shards}, {read}"
    if inspection.account is not None:
        rows = [row for row in inspection.account.rows if row.tensors]
        yield "  account   " + ", ".join(f"{row.kind} {row.tensors:,} ({size_in_words(row.bytes)})" for row in rows)
    if inspection.unit_count:
        also = f", {predicting:,} of them in multi-token prediction (MTP)" if predicting else ""
        yield f"  units     {inspection.unit_count:,}{also}"


def _violation(group: ViolationGroup) -> Iterator[str]:
    count = f" x {len(group.objects):,}" if len(group.objects) > 1 else ""
    yield f"  {click.style(group.code, fg='red')}{count}"
    for name, shard in group.objects[:_OBJECTS_SHOWN]:
        yield printable(f"    {name}" + (f"  in {shard}" if shard and shard != name else ""))
    if len(group.objects) > _OBJECTS_SHOWN:
        yield f"    and {len(group.objects) - _OBJECTS_SHOWN:,} more; --output json lists all"
    yield printable(f"    expected  {group.expected}")
    yield printable(f"    found     {group.found}")
    if group.resembles:
        yield f"    resembles {group.resembles}"
    yield printable(f"    remedy    {group.remedy}")


def _tables(inspection: Inspection, prefixes: tuple[PrefixRow, ...]) -> Iterator[str]:
    if prefixes:
        rows = [
            (
                row.prefix,
                f"{row.tensors:,}",
                f"{row.units:,}" if row.units else "-",
                f"{row.unquantized:,}" if row.unquantized else "-",
                " ".join(row.unquantized_dtypes),
            )
            for row in prefixes
        ]
        yield ""
        yield from _table(("prefix", "tensors", "units", "unquantized", "unquantized dtypes"), rows, "lrrrl", _PREFIXES_SHOWN)
    grids = grid_rows(inspection)
    if grids:
        yield ""
        yield from _table(*grid_table(grids), _GRIDS_SHOWN)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], sides: str, limit: int) -> Iterator[str]:
    shown = rows[:limit]
    widths = [max(len(row[column]) for row in (heads, *shown)) for column in range(len(heads))]

    def line(cells: tuple[str, ...]) -> str:
        padded = [cell.ljust(width) if side == "l" else cell.rjust(width) for cell, width, side in zip(cells, widths, sides, strict=True)]
        return printable("  " + "  ".join(padded).rstrip())

    yield click.style(line(heads), dim=True)
    yield from map(line, shown)
    if len(rows) > limit:
        yield f"  and {len(rows) - limit:,} more; --output json lists all"


def _bullets(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield click.style(f"  {title}", dim=True)
        yield from (printable(f"    - {line}") for line in lines)


def _units(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    listed = ", ".join(names[:2])
    return f": {len(names):,} units such as {listed}" if len(names) > 2 else f": {listed}"

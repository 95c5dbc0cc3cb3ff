"""The report for programs; `tensorhub schema inspection` prints its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from tensorhub_contracts._version import __version__
from tensorhub_contracts.documents import compact_json
from tensorhub_contracts.errors import Violation, writable
from tensorhub_contracts.inspection.account import Account
from tensorhub_contracts.inspection.prefixes import is_multi_token_prediction, layer_count
from tensorhub_contracts.inspection.result import Inspection, State
from tensorhub_contracts.reports.summary import GridRow, PrefixRow, grid_rows, prefix_rows

REPORT_VERSION = 1


@attrs.frozen
class ContractReport:
    """The contract that was proved."""

    handle: str
    digest: str


@attrs.frozen
class UnitReport:
    """One unit. Shapes are in stored elements; the scale fields are empty if the contract has no scale."""

    name: str
    shard: str
    form: str
    dtype: str
    shape: tuple[int, ...]
    scale_name: str
    scale_dtype: str
    grid: tuple[int, ...]
    block: tuple[int, int] | None
    experts: int
    multi_token_prediction: bool
    orientation_shown: bool


@attrs.frozen
class NotProvableReport:
    """What headers cannot show; `units` are those concerned, empty if it concerns all."""

    statement: str
    units: tuple[str, ...]


@attrs.frozen
class CheckpointReport:
    """What was read: sizes in bytes, and the digest that identifies the headers."""

    tensors: int
    shards: int
    file_bytes: int
    bytes_read: int
    headers_digest: str
    declarations: tuple[str, ...]
    extra_files: tuple[str, ...]


@attrs.frozen
class InspectionReport:
    """One inspection; the fields are those of `tensorhub_contracts.Inspection`."""

    path: str
    component: str
    #: `accepted` is true for `proved` alone. What is `unjudged` could not be read, and may be asked again.
    state: State
    accepted: bool
    contract: ContractReport | None
    nearest: str | None
    resembles: tuple[str, ...]
    checkpoint: CheckpointReport | None
    account: Account | None
    #: The tensors of which a few values were read; headers tell everything else.
    values_read: tuple[str, ...]
    violations: tuple[Violation, ...]
    notes: tuple[str, ...]
    proved: tuple[str, ...]
    not_provable: tuple[NotProvableReport, ...]
    prefixes: tuple[PrefixRow, ...]
    grids: tuple[GridRow, ...]
    units: tuple[UnitReport, ...]


@attrs.frozen
class Report:
    """The whole report; `accepted` is true if every inspection is, and `version` is the report's own."""

    version: int
    tool: str
    accepted: bool
    inspections: tuple[InspectionReport, ...]


def write(inspections: Sequence[Inspection]) -> str:
    """Return the report as JSON, ended by a newline."""
    report = Report(
        version=REPORT_VERSION,
        tool=f"tensorhub-contracts {__version__}",
        accepted=all(inspection.accepted for inspection in inspections),
        inspections=tuple(map(inspection_report, inspections)),
    )
    return compact_json(report)


def inspection_report(inspection: Inspection) -> InspectionReport:
    """Return an inspection as the structure that is written."""
    return InspectionReport(
        path=writable(inspection.path),
        component=inspection.component,
        state=inspection.state,
        accepted=inspection.accepted,
        contract=ContractReport(inspection.contract, inspection.digest or "") if inspection.contract else None,
        nearest=inspection.nearest,
        resembles=inspection.resembles,
        checkpoint=_checkpoint(inspection),
        account=inspection.account,
        values_read=inspection.values_read,
        violations=inspection.violations,
        notes=inspection.notes,
        proved=inspection.proved,
        not_provable=tuple(NotProvableReport(statement, units) for statement, units in inspection.not_provable),
        prefixes=prefix_rows(inspection),
        grids=grid_rows(inspection),
        units=tuple(_units(inspection)),
    )


def _checkpoint(inspection: Inspection) -> CheckpointReport | None:
    checkpoint = inspection.checkpoint
    if checkpoint is None:
        return None
    return CheckpointReport(
        tensors=checkpoint.tensor_count,
        shards=len(checkpoint.shards),
        file_bytes=sum(shard.file_size for shard in checkpoint.shards),
        bytes_read=checkpoint.bytes_read,
        headers_digest=checkpoint.headers_digest,
        declarations=tuple(source.where for source in checkpoint.declarations),
        extra_files=tuple(map(writable, checkpoint.extra_files)),
    )


def _units(inspection: Inspection) -> Iterator[UnitReport]:
    checkpoint = inspection.checkpoint
    if checkpoint is None:
        return
    layers = layer_count(checkpoint.config)
    for unit in inspection.units:
        layout = unit.layout
        yield UnitReport(
            name=unit.name,
            shard=writable(checkpoint.shard_of[unit.name]),
            form=layout.form,
            dtype=layout.weight_dtype,
            shape=layout.weight_shape,
            scale_name=layout.scale_name,
            scale_dtype=layout.scale_dtype,
            grid=layout.grid,
            block=layout.block,
            experts=layout.experts,
            multi_token_prediction=is_multi_token_prediction(unit.name, layers),
            orientation_shown=layout.orientation_shown,
        )

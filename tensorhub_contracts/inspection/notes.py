"""What an inspection says beside its verdict: what was proved, what headers cannot show, and what is worth a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorhub_contracts.checkpoints.geometry import WIDE_FLOAT
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.exclusions import ExclusionReport
from tensorhub_contracts.inspection.remarks.optional_sidecars import sidecar_gaps
from tensorhub_contracts.inspection.remarks.undeclared import tied_heads, undeclared_matrices
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.inspection.unquantized import matrix_dtypes
from tensorhub_contracts.registry.contract import NOT_PROVABLE, Contract


def proved(candidates: Candidates, contract: Contract, units: int) -> Iterator[str]:
    """Yield what the headers prove, in sentences."""
    checkpoint = candidates.checkpoint
    yield f"container: {_count(len(checkpoint.headers), 'shard')}, every payload tiled by its tensors without holes or overlaps"
    if checkpoint.index_name:
        unindexed = sum(len(checkpoint.headers[shard].tensors) for shard in checkpoint.unindexed)
        yield f"index: {checkpoint.index_name} and the headers agree on all {_count(checkpoint.tensor_count - unindexed, 'tensor')}"
    if not contract.quantized:
        counts = matrix_dtypes(candidates.groups)
        what = "matrix" if any(len(each.shape) > 1 for each in candidates.groups.unquantized.values()) else "tensor"
        dtypes = " or ".join(f"{dtype} ({count:,})" for dtype, count in sorted(counts.items())) if len(counts) > 1 else contract.element
        yield f"dense: every {what} is {dtypes}, and nothing is quantized or scaled"
        return
    if contract.whole_tree:
        yield f"units: {_count(units, 'F8 tensor')}, and no scale anywhere"
    else:
        shared = "".join(f"; {len(weights):,} share {name}" for name, weights in candidates.groups.shared.items())
        yield f"units: {_count(units, 'weight')}, each with the sidecars of {contract.handle}, every sidecar used exactly once{shared}"
    if contract.block:
        yield f"grids: every scale grid has the shape that blocks of {contract.block[0]} x {contract.block[1]} ask for"
    for source in checkpoint.declarations:
        yield f"declaration: {source.where} declares {contract.handle}"


def not_provable(candidates: Candidates, contract: Contract) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what headers cannot show, with the names of the units concerned, or none if it concerns all."""
    for word in contract.not_provable:
        if word == "grid-orientation":
            square = tuple(
                name
                for geometry, judgement in candidates.judged(contract.handle).items()
                if isinstance(judgement, UnitLayout) and not judgement.orientation_shown
                for name in candidates.groups.quantized[geometry]
            )
            if square:
                yield NOT_PROVABLE[word], square
        else:
            yield NOT_PROVABLE[word], ()


def notes(candidates: Candidates, contract: Contract, exclusions: ExclusionReport, *, accepted: bool) -> Iterator[str]:
    """Yield what is worth a line and changes no verdict."""
    checkpoint, groups, registry = candidates.checkpoint, candidates.groups, candidates.registry
    if accepted and contract.handle not in registry.decoded:
        yield f"no decoder installed here reads {contract.handle}: to prove it needs none, to load it does.{registry.unavailable_note}"
    if checkpoint.extra_files:
        yield f"not part of the checkpoint and not read: {_some(checkpoint.extra_files)}"
    if checkpoint.unindexed:
        yield f"not in the index and judged with the others, for multi-token prediction: {_some(checkpoint.unindexed)}"
    if checkpoint.held_twice:
        yield f"in two shards, the index decides: {_some(checkpoint.held_twice)}"
    if groups.cache_scales:
        yield f"{_count(len(groups.cache_scales), 'key or value cache scale')}: no weight scales, left alone: {_some(groups.cache_scales)}"
    yield from _exclusion_notes(candidates, exclusions)
    if candidates.quantized:
        yield from _expert_gaps(name for names in groups.quantized.values() for name in names)
        yield from _declared_layers(candidates)
        yield from sidecar_gaps(candidates, contract)
    dtypes = set(_scale_dtypes(candidates, contract))
    for source in checkpoint.declarations:
        if source.content.get("scale_fmt") == "ue8m0" and not dtypes.isdisjoint(WIDE_FLOAT):
            yield f"{source.where}: scale_fmt ue8m0 is declared; that the stored scales are powers of two is not shown by headers"
    if len(dtypes) > 1:
        yield f"scale grids of several dtypes, each expanded exactly to F32: {', '.join(sorted(dtypes))}"


def _scale_dtypes(candidates: Candidates, contract: Contract) -> Iterator[str]:
    for judgement in candidates.judged(contract.handle).values():
        if isinstance(judgement, UnitLayout) and judgement.scale_dtype:
            yield judgement.scale_dtype


def _exclusion_notes(candidates: Candidates, report: ExclusionReport) -> Iterator[str]:
    entries = f"{report.entries:,} exclusion entries"
    unmatched = tuple(entry for entry in report.unmatched if entry not in tied_heads(candidates.checkpoint.config))
    if unmatched and not report.matched and not report.not_evaluated:
        yield f"0 of {entries} match any tensor: configuration and tree may come from different exports"
    elif unmatched:
        yield f"{len(unmatched)} of {entries} match no tensor: {_some(unmatched)}"
    for entry, name in report.contradicted[:5]:
        yield f"exclusion entry {entry!r} is contradicted by the bytes: {name} is quantized, and is read as such"
    if report.by_suffix:
        yield f"exclusion entries matched by suffix, not from the first segment: {_some(report.by_suffix)}"
    undeclared = undeclared_matrices(report, candidates.checkpoint, candidates.groups)
    if undeclared:
        yield f"unquantized and not declared as such, kept as they are: {_some(undeclared)}"
    if report.not_evaluated:
        yield f"exclusion patterns not evaluated (unbounded time, or classes of characters): {_some(report.not_evaluated)}"


def _expert_gaps(names: Iterable[str]) -> Iterator[str]:
    """Experts are numbered from 0; a gap is no violation, and worth a line."""
    seen: dict[str, set[int]] = {}
    for name in names:
        head, found, tail = name.partition(".experts.")
        if found and (number := tail.partition(".")[0]).isdigit():
            seen.setdefault(head + ".experts", set()).add(int(number))
    for prefix, numbers in seen.items():
        absent = [str(number) for number in range(min(max(numbers), 100_000)) if number not in numbers]
        if absent:
            yield f"{prefix}: expert numbers skip {_some(absent)}"


def _declared_layers(candidates: Candidates) -> Iterator[str]:
    """`quantized_layers` names what is quantized; a name that matches nothing is worth a line."""
    for source in candidates.checkpoint.declarations:
        layers = source.content.get("quantized_layers")
        if isinstance(layers, dict):
            names = [name for group in candidates.groups.quantized.values() for name in group]
            absent = [layer for layer in layers if not any(name.startswith(layer + ".") for name in names)]
            if absent:
                yield f"{source.where}: quantized_layers names {_some(absent)}, which no quantized tensor is in"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3:,} more" if len(listed) > 3 else "")


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else word + 's'}"

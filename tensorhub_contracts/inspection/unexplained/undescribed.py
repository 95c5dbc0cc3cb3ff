"""Layouts that no contract describes: said first and alone, as what they are, and never as a damaged form of the nearest one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.checkpoints.geometry import PACKED, WIDE_FLOAT, write_shape
from tensorhub_contracts.errors import MOST_VIOLATIONS, Violation
from tensorhub_contracts.inspection.candidates import Candidates, describe_unit
from tensorhub_contracts.inspection.declared.declaration_words import describe_declaration, write_value
from tensorhub_contracts.inspection.declared.declarations import SourceJudgement, known_methods, unknown_key
from tensorhub_contracts.inspection.declared.declared_block import block_contradictions
from tensorhub_contracts.inspection.mixed import described_parts
from tensorhub_contracts.inspection.unexplained.bookkeeping import describe
from tensorhub_contracts.inspection.unexplained.methods import method_of_declaration, methods_of_tensors
from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry
from tensorhub_contracts.registry.contract import Contract


def undescribed_violations(candidates: Candidates) -> Sequence[Violation | int]:
    """Return what says that all of a checkpoint is in a layout which no contract describes, or in several; or nothing."""
    return described_parts(candidates) or list(_declared(candidates)) or list(_units(candidates)) or _integers_alone(candidates)


def unexplained_violations(candidates: Candidates, expected: str) -> Iterator[Violation | int]:
    """Yield a violation for each integer, boolean or complex tensor that nothing explains; see `bookkeeping`."""
    if not candidates.unexplained:
        return
    others, shard_of = candidates.groups.other, candidates.checkpoint.shard_of
    methods = methods_of_tensors(shard_of, candidates.unexplained[:MOST_VIOLATIONS], candidates.registry.methods)
    yield max(0, len(candidates.unexplained) - MOST_VIOLATIONS)
    for name in candidates.unexplained[:MOST_VIOLATIONS]:
        found = f"{others[name].dtype} {write_shape(others[name].shape)}: "
        method = methods.get(name)
        found += f"as {method.name} writes it ({method.unit})" if method else describe(others[name])
        yield Violation(code="tensor-unexplained", object=name, expected=expected, found=found, shard=shard_of[name])


def _declared(candidates: Candidates) -> Iterator[Violation]:
    """A method or a format is declared that no contract describes, and the bytes are in none that the declaration could mean."""
    judged = candidates.declared.by_source
    if any(each.declares for each in judged):  # then they differ, which is said as that
        return
    for each in judged:
        if _declares_unknown(candidates, each):
            yield _unknown_declaration(candidates, each.source)
            return


def _unknown_declaration(candidates: Candidates, source: DeclarationSource) -> Violation:
    registry, content = candidates.registry, source.content
    key = unknown_key(source, registry)
    known = ", ".join(map(write_value, known_methods(source, key, registry))) if key else ""
    method = method_of_declaration(content, registry.methods)
    found = describe_declaration(content) + (f": {method.name}, whose units are {method.unit}" if method else "")
    return Violation(
        code="declaration-unknown",
        object=f"{source.where}: {key}" if key else source.where,
        expected="a method and a format that a contract describes" + (f": {known}" if known else ""),
        found=f"{found}; the tensors: {_tensors_in_words(candidates)}",
        remedy="No contract here describes this layout: install the plugin that owns it, or use an export in a contract."
        + registry.unavailable_note,
    )


def _declares_unknown(candidates: Candidates, judged: SourceJudgement) -> bool:
    if unknown_key(judged.source, candidates.registry) is not None:
        return True
    addressed = {handle: judged.faults[handle] for handle in judged.addressed if handle in judged.faults}
    if not addressed or any(candidates.matched(handle) for handle in addressed):
        return False
    closest = min(map(len, addressed.values()))
    mismatch = all(fault.code == "declaration-mismatch" for faults in addressed.values() if len(faults) == closest for fault in faults)
    quantized = candidates.quantized or candidates.unexplained
    return bool(quantized) and mismatch and not any(block_contradictions(candidates))


def _units(candidates: Candidates) -> Iterator[Violation]:
    """Every unit is of a kind that occurs in no contract, such as integers with a scale beside them."""
    kinds = {geometry: names for geometry, names in candidates.groups.quantized.items() if _is_unknown_kind(candidates, geometry)}
    if candidates.declared.handles or not kinds or any(candidates.contracts_of(geometry) for geometry in candidates.groups.quantized):
        return
    names = [name for names in kinds.values() for name in names[:1]]
    methods = methods_of_tensors(candidates.checkpoint.shard_of, names, candidates.registry.methods)
    for geometry, of_kind in kinds.items():
        method = methods.get(of_kind[0])
        more = f", and {len(of_kind) - 1:,} more like it" if len(of_kind) > 1 else ""
        yield Violation(
            code="layout-undescribed",
            object=of_kind[0],
            expected="a unit that a contract describes",
            found=describe_unit(geometry) + more + (f": as {method.name} writes it ({method.unit})" if method else ""),
            shard=candidates.checkpoint.shard_of[of_kind[0]],
        )


def _is_unknown_kind(candidates: Candidates, geometry: UnitGeometry) -> bool:
    """Whether integers stand for the weight or for its scale, and no form of the registry has them so."""
    scales = [each for each in geometry.sidecars if candidates.judge.role(each.name) == "weight-scale"]
    if not scales or not ({geometry.dtype, *(each.dtype for each in scales)} & PACKED):
        return False
    return not any(_has_kind(candidates, contract, geometry) for contract in candidates.registry.contracts.values())


def _has_kind(candidates: Candidates, contract: Contract, geometry: UnitGeometry) -> bool:
    for form in contract.form:
        wanted = candidates.judge.sidecars_of(contract, form)
        scales = [each for each in geometry.sidecars if candidates.judge.role(each.name) == "weight-scale"]
        named = form.primary.suffix in ("", geometry.suffix) and geometry.dtype in form.primary.dtypes
        if named and all(each.name in wanted and each.dtype in wanted[each.name].dtypes for each in scales):
            return True
    return False


def _integers_alone(candidates: Candidates) -> list[Violation | int]:
    """Nothing is quantized in a way that is known, and integers lie there that nothing explains."""
    if candidates.groups.quantized:
        return []
    expected = "unquantized weights, and integers that are bookkeeping: masks, counters, tables of positions"
    return list(unexplained_violations(candidates, expected))


def _tensors_in_words(candidates: Candidates) -> str:
    """Return what the first tensor that is not unquantized looks like."""
    geometry = next(iter(candidates.groups.quantized), None)
    if geometry is not None:
        return f"{candidates.groups.quantized[geometry][0]}: {describe_unit(geometry)}"
    tensors = candidates.checkpoint.tensors
    name = next(iter(candidates.unexplained), "")
    if name:
        return f"{name}: {tensors[name].dtype} {write_shape(tensors[name].shape)}, and {len(candidates.unexplained) - 1:,} more of integers"
    return f"{sum(each.dtype in WIDE_FLOAT for each in candidates.groups.unquantized.values()):,} unquantized, and none quantized"

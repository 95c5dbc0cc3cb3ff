"""More than one quantized layout in one tree: units of different kinds, or in contracts that have none in common."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.declaration_words import describe_declaration
from tensorhub_contracts.inspection.prefixes import prefix_of
from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry
from tensorhub_contracts.registry.contract import Contract

#: A unit, coarsely: how its weight is stored, and the names of its scales.
_Kind = tuple[str, ...]


def mixed_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield `layout-mixed`, with a table by prefix, if a tree holds more than one quantized layout."""
    if candidates.matches_all(contract.handle):
        return
    contracts_of: dict[tuple[_Kind, tuple[str, ...]], set[str]] = {}
    for geometry in candidates.groups.quantized:
        kind = _kind(candidates, geometry)
        if kind is not None:
            contracts = candidates.contracts_of(geometry)
            contracts_of[kind, tuple(contracts)] = set(contracts)
    kinds = {kind for kind, _ in contracts_of}
    proved = [each for each in contracts_of.values() if each]
    several_kinds = len(kinds) > 1 and not set.intersection(*contracts_of.values())  # DeepSeek's FP8 with FP4 experts is one contract
    nothing_common = len(proved) > 1 and not set.intersection(*proved)
    if several_kinds or nothing_common or _has_foreign_scales(candidates, kinds):
        yield _mixed(candidates, f"one layout, {contract.handle}")


def described_parts(candidates: Candidates) -> list[Violation]:
    """Return `layout-mixed` alone if each unit is in some contract, no contract is declared for all, and none has them all.

    How the units of one layout differ from another says nothing then: what is declared as mixed is several sound layouts.
    """
    groups, declared = candidates.groups, candidates.declared
    if declared.handles or groups.orphans or not groups.quantized or candidates.matching_contracts:
        return []
    contracts = [frozenset(candidates.contracts_of(geometry)) for geometry in groups.quantized]
    if not all(contracts) or frozenset.intersection(*contracts):
        return []
    said = "; ".join(f"{each.source.where} declares {describe_declaration(each.source.content)}" for each in declared.by_source)
    return [_mixed(candidates, "one layout: no contract describes several" + (f"; {said}" if said else ""))]


def _mixed(candidates: Candidates, expected: str) -> Violation:
    rows = "; ".join(f"{prefix}: {count:,} x {what}" for (prefix, what), count in _table(candidates).items())
    return Violation(code="layout-mixed", object=candidates.checkpoint.path, expected=expected, found=rows)


def _kind(candidates: Candidates, geometry: UnitGeometry) -> _Kind | None:
    """Return what kind of unit it is, or None if it has no weight scale or several: that is another fault."""
    roles = {sidecar.name: candidates.judge.role(sidecar.name) for sidecar in geometry.sidecars}
    if sum(role == "weight-scale" for role in roles.values()) != 1:
        return None
    scales = (name for name, role in roles.items() if role in ("weight-scale", "global-scale"))  # sorted, as the sidecars are
    return ("F8" if geometry.dtype.startswith("F8") else geometry.dtype, *scales)


def _has_foreign_scales(candidates: Candidates, kinds: set[_Kind]) -> bool:
    """Whether weight scales without a weight have a name that no unit's scale has."""
    left_over = {sidecar.suffix for _, sidecar in candidates.groups.orphans if sidecar.role == "weight-scale"}
    return bool(kinds) and not left_over <= {name for kind in kinds for name in kind}


def _table(candidates: Candidates) -> dict[tuple[str, str], int]:
    """Count units by prefix and by what they look like."""
    table: dict[tuple[str, str], int] = {}
    for geometry, names in candidates.groups.quantized.items():
        contracts = _declared_first(candidates, candidates.contracts_of(geometry))
        listed = ", ".join(f"{each.name} {each.dtype} rank {len(each.shape)}" for each in geometry.sidecars) or "no scale"
        what = f"{geometry.dtype} rank {len(geometry.shape)} with {listed}" + (f" ({contracts[0]})" if contracts else "")
        for name in names:
            key = (prefix_of(name), what)
            table[key] = table.get(key, 0) + 1
    for name, sidecar in candidates.groups.orphans:
        key = (prefix_of(name), f"{sidecar.suffix} without a quantized weight")
        table[key] = table.get(key, 0) + 1
    return table


def _declared_first(candidates: Candidates, contracts: list[str]) -> list[str]:
    """Put the contracts whose method is declared before those that look the same."""
    return sorted(contracts, key=lambda handle: handle not in candidates.declared.addressed)

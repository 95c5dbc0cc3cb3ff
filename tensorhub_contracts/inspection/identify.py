"""Identifies a checkpoint: judges it against every contract, and says which one all of it is in, or why none is."""

from __future__ import annotations

from typing import Final

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.errors import Violation, bounded
from tensorhub_contracts.inspection.candidates import Candidates, gather_candidates
from tensorhub_contracts.inspection.choice import choose_contract
from tensorhub_contracts.inspection.declared.declarations import declaration_violations
from tensorhub_contracts.inspection.declared.exclusions import ExclusionReport, check_exclusions
from tensorhub_contracts.inspection.declared.undeclared import undeclared_violations
from tensorhub_contracts.inspection.notes import not_provable, proved
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.inspection.tree_violations import contract_violations, empty_violations, layout_violations
from tensorhub_contracts.inspection.unexplained.undescribed import undescribed_violations
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.inspection.unquantized import unquantized_violations
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.registry import Registry

#: More kinds of units than any model has: the largest releases have some dozens.
_MOST_KINDS: Final = 4_096


def identify(checkpoint: Checkpoint, registry: Registry, groups: TensorGroups, wanted: Contract | None) -> Inspection:
    """Return the inspection of a checkpoint whose container was found sound, judged against `wanted` if it is given."""
    candidates = gather_candidates(checkpoint, registry, groups)
    if len(groups.quantized) > _MOST_KINDS:
        return _of_too_many_kinds(candidates)
    contract = wanted or choose_contract(candidates)
    units_of: dict[UnitLayout, list[str]] = {}
    for geometry, judgement in candidates.judged(contract.handle).items():
        if isinstance(judgement, UnitLayout):
            units_of.setdefault(judgement, []).extend(groups.quantized[geometry])
    # A layout that nothing here describes is said as what it is, alone: how it differs from another says nothing.
    alone = bounded(empty_violations(checkpoint, groups)) or bounded(undescribed_violations(candidates))
    if wanted and not alone:
        from tensorhub_contracts.inspection.wanted import unquantized_instead  # most are asked for by no name

        alone = tuple(unquantized_instead(candidates, wanted))
    found: list[Violation | int] = []
    exclusions = ExclusionReport()
    if not alone:
        if checkpoint.declarations:
            exclusions = _exclusions(candidates)
        found += declaration_violations(candidates.declared, contract)
        found += undeclared_violations(candidates, contract)
        found += exclusions.violations
        found += layout_violations(candidates, contract)
        found += unquantized_violations(checkpoint, groups, contract)
        found += contract_violations(candidates, contract, wanted, refused=bool(bounded(found)))
    violations = alone or bounded(found)
    accepted = not violations
    nearest = None if alone and wanted is None else contract.handle
    return Inspection(
        path=checkpoint.path,
        component=checkpoint.component,
        contract=contract.handle if accepted else None,
        digest=registry.digest(contract.handle) if accepted else None,
        nearest=nearest if checkpoint.tensor_count else None,
        violations=violations,
        proved=tuple(proved(candidates, contract, sum(map(len, units_of.values())))) if accepted else (),
        not_provable=tuple(not_provable(candidates, contract)),
        units_of=units_of,
        checkpoint=checkpoint,
        groups=groups,
        exclusions=exclusions,
        candidates=candidates,
        facts=contract,
    )


def _of_too_many_kinds(candidates: Candidates) -> Inspection:
    """Refuse what is no model: each kind of unit would be judged against every contract."""
    checkpoint, groups = candidates.checkpoint, candidates.groups
    expected = f"at most {_MOST_KINDS:,} kinds of quantized tensors, by dtype, shape and scales"
    found = f"{len(groups.quantized):,} kinds"
    violation = Violation(code="layout-undescribed", object=checkpoint.path, expected=expected, found=found)
    return Inspection(checkpoint.path, checkpoint.component, None, None, None, (violation,), checkpoint=checkpoint, groups=groups)


def _exclusions(candidates: Candidates) -> ExclusionReport:
    unquantized = candidates.groups.unquantized
    return check_exclusions(
        candidates.checkpoint.declarations,
        [name for names in candidates.groups.quantized.values() for name in names],
        unquantized,
        {name for name, geometry in unquantized.items() if len(geometry.shape) == 2},
    )

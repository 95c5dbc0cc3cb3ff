"""Identifies a checkpoint: judges every signature against every contract, picks the one that all of it is in, or says why none is."""

from __future__ import annotations

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.inspection.candidates import Candidates, gather_candidates
from tensorhub_contracts.inspection.declarations import declaration_violations
from tensorhub_contracts.inspection.exclusions import ExclusionReport, check_exclusions
from tensorhub_contracts.inspection.grouping import TensorGroups
from tensorhub_contracts.inspection.notes import not_provable, notes, proved
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.inspection.tree_violations import contract_violations, empty_violations, layout_violations
from tensorhub_contracts.inspection.unit_matching import UnitLayout
from tensorhub_contracts.inspection.unit_violations import packed_violations
from tensorhub_contracts.inspection.unquantized import count_of_other_dtypes, unquantized_violations
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.registry import Registry


def identify(checkpoint: Checkpoint, registry: Registry, groups: TensorGroups, wanted: Contract | None) -> Inspection:
    """Return the inspection of a checkpoint whose container was found sound."""
    candidates = gather_candidates(checkpoint, registry, groups)
    contract = wanted or _choose(candidates)
    units_of: dict[UnitLayout, list[str]] = {}
    for signature, judgement in candidates.judged(contract.handle).items():
        if isinstance(judgement, UnitLayout):
            units_of.setdefault(judgement, []).extend(groups.quantized[signature])
    violations = list(empty_violations(checkpoint, groups))
    exclusions = ExclusionReport()
    if not violations:
        if candidates.quantized or checkpoint.declarations:
            exclusions = _exclusions(candidates)
        violations += declaration_violations(candidates.declared, contract, registry)
        violations += exclusions.violations
        violations += layout_violations(candidates, contract)
        violations += packed_violations(candidates, contract)
        violations += unquantized_violations(checkpoint, groups, contract)
        violations += contract_violations(candidates, contract, wanted, refused=bool(violations))
    accepted = not violations
    return Inspection(
        path=checkpoint.path,
        component=checkpoint.component,
        contract=contract.handle if accepted else None,
        digest=registry.digest(contract.handle) if accepted else None,
        nearest=contract.handle if checkpoint.tensor_count else None,
        violations=tuple(violations),
        proved=tuple(proved(candidates, contract, sum(map(len, units_of.values())))) if accepted else (),
        not_provable=tuple(not_provable(candidates, contract)),
        units_of=units_of,
        checkpoint=checkpoint,
        groups=groups,
        exclusions=exclusions,
        likeness=lambda: _resembles(candidates),
        observations=lambda: notes(candidates, contract, exclusions),
        facts=contract,
    )


def _choose(candidates: Candidates) -> Contract:
    """Return the contract to judge the checkpoint against when the caller named none.

    A contract that all bytes and all declarations agree on comes first; then the declared one that most units are in;
    then the one that is least wrong. What is declared weighs more than what a damaged unit looks like.
    """
    contracts = candidates.registry.contracts
    if not candidates.quantized:
        declared = [contracts[handle] for handle in contracts if handle in candidates.declared.handles]
        plain = [contract for contract in contracts.values() if not contract.quantized]
        if declared:
            return declared[0]
        return min(plain, key=lambda contract: count_of_other_dtypes(candidates.groups, contract))
    agreed = [
        contracts[handle]
        for handle in candidates.quantized_contracts
        if (handle in candidates.declared.handles if contracts[handle].declares else not candidates.declared.by_source)
        and candidates.is_full(handle)
    ]
    if agreed:
        return agreed[0]
    meant = [handle for handle in contracts if handle in candidates.declared.handles]
    if any(candidates.matched(handle) for handle in meant):
        return contracts[max(meant, key=candidates.matched)]
    unmarked = [handle for handle, each in contracts.items() if each.quantized and not each.whole_tree]
    return contracts[min(unmarked, key=lambda handle: _distance(candidates, handle))]


#: How much a finding says that the bytes are in another layout, and not a damaged form of this one.
_WEIGHTS = {
    "weight-name": 50,
    "weight-rank": 50,
    "weight-dtype": 50,
    "scale-name-foreign": 50,
    "scale-missing": 42,
    "scale-rank": 40,
    "scale-grid": 40,
    "scale-grid-transposed": 40,
}
_WEIGHT_OF_OTHERS = 10

#: The same for a declaration: none at all, one of another layout of the same method, one of another method.
_UNDECLARED, _SAME_METHOD, _OTHER_METHOD = 30, 45, 60


def _distance(candidates: Candidates, handle: str) -> tuple[int, int]:
    """Return the worst that is wrong if the checkpoint is to be in a contract, and how much is wrong in all."""
    worst = total = _declaration_distance(candidates, handle)
    for signature, judgement in candidates.judged(handle).items():
        if not isinstance(judgement, UnitLayout):
            weights = [_WEIGHTS.get(finding.code, _WEIGHT_OF_OTHERS) for finding in judgement]
            worst = max(worst, *weights)
            total += len(candidates.groups.quantized[signature]) * sum(weights)
    return worst, total


def _declaration_distance(candidates: Candidates, handle: str) -> int:
    declared = candidates.declared
    if not declared.by_source:
        return _UNDECLARED if candidates.registry.contracts[handle].declares else 0
    if handle in declared.handles:
        return 0
    return _SAME_METHOD if handle in declared.addressed else _OTHER_METHOD


def _resembles(candidates: Candidates) -> tuple[str, ...]:
    """Return the contracts that all units look like, or else those that some look like, most units first."""
    if candidates.full:
        return candidates.full
    counts = {
        handle: candidates.matched(handle)
        for handle in candidates.quantized_contracts
        if not candidates.registry.contracts[handle].whole_tree
    }
    return tuple(handle for handle, count in sorted(counts.items(), key=lambda item: -item[1]) if count)


def _exclusions(candidates: Candidates) -> ExclusionReport:
    unquantized = candidates.groups.unquantized
    return check_exclusions(
        candidates.checkpoint.declarations,
        [name for names in candidates.groups.quantized.values() for name in names],
        unquantized,
        {name for name, geometry in unquantized.items() if len(geometry.shape) == 2},
    )

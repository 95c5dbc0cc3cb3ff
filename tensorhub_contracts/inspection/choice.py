"""Which contract a checkpoint is judged against if the caller names none."""

from __future__ import annotations

from typing import Final

from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.undeclared import stands_undeclared
from tensorhub_contracts.inspection.units.unit_matching import Finding, UnitLayout
from tensorhub_contracts.inspection.unquantized import count_of_other_dtypes
from tensorhub_contracts.registry.contract import Contract

#: How much a finding says that the bytes are in another layout, and not a damaged form of this one.
_WEIGHTS: Final = {
    "weight-name": 50,
    "weight-rank": 50,
    "weight-dtype": 50,
    "scale-name-foreign": 50,
    "scale-missing": 42,
    "scale-rank": 40,
    "scale-grid": 40,
    "scale-grid-transposed": 40,
    "scale-shared": 60,
}
_WEIGHT_OF_OTHERS: Final = 10

#: The same for a declaration: none at all, for a contract that bytes alone may prove and for another; one of another layout of the
#: same method, one of another method.
_UNPROVED, _UNDECLARED, _SAME_METHOD, _OTHER_METHOD = 20, 30, 45, 60


def choose_contract(candidates: Candidates) -> Contract:
    """Return the contract to judge a checkpoint against.

    A contract that all bytes and all declarations agree on comes first; then the declared one that most units are in;
    then the one that is least wrong. What is declared weighs more than what a damaged unit looks like.
    """
    contracts, declared = candidates.registry.contracts, candidates.declared
    if not candidates.quantized:
        meant = [contracts[handle] for handle in contracts if handle in declared.handles]
        plain = [contract for contract in contracts.values() if not contract.quantized]
        return meant[0] if meant else min(plain, key=lambda contract: count_of_other_dtypes(candidates.groups, contract))
    agreed = [
        handle
        for handle in candidates.quantized_contracts
        if (handle in declared.handles if declared.by_source else stands_undeclared(candidates, contracts[handle]))
    ]
    for matches in (candidates.matches_all, candidates.matches_units):
        found = next(filter(matches, agreed), None)
        if found is not None:
            return contracts[found]
    named = [handle for handle in contracts if handle in declared.handles]
    if any(candidates.matched(handle) for handle in named):
        return contracts[min(named, key=lambda handle: (-candidates.matched(handle), _distance(candidates, handle)))]
    # Where anything has a scale, one without is damaged; where nothing has, a contract without scales is as near as any.
    scaled = bool(candidates.groups.orphans) or any(geometry.sidecars for geometry in candidates.groups.quantized)
    others = [handle for handle, each in contracts.items() if each.quantized and not (scaled and each.whole_tree)]
    return contracts[min(others, key=lambda handle: _distance(candidates, handle))]


def _distance(candidates: Candidates, handle: str) -> tuple[int, int]:
    """Return the worst that is wrong if the checkpoint is to be in a contract, and how much is wrong in all."""
    worst = total = _declaration_distance(candidates, handle)
    for geometry, judgement in candidates.judged(handle).items():
        if not isinstance(judgement, UnitLayout):
            weights = [_weight(candidates, finding) for finding in judgement]
            worst = max(worst, *weights)
            total += len(candidates.groups.quantized[geometry]) * sum(weights)
    return worst, total


def _weight(candidates: Candidates, finding: Finding) -> int:
    """Return how much a finding says.

    An activation's scale that is missing says less than what scales the weight, and a producer's note as much as a name.
    """
    role = candidates.judge.role(finding.sidecar) if finding.sidecar else ""
    if finding.code == "scale-missing" and role == "activation-scale":
        return _WEIGHT_OF_OTHERS
    if finding.code == "sidecar-forbidden" and role == "producer-note":
        return _WEIGHTS["scale-name-foreign"]
    return _WEIGHTS.get(finding.code, _WEIGHT_OF_OTHERS)


def _declaration_distance(candidates: Candidates, handle: str) -> int:
    declared = candidates.declared
    if not declared.by_source:
        contract = candidates.registry.contracts[handle]
        if stands_undeclared(candidates, contract):
            return 0
        return _UNPROVED if contract.when_undeclared == "if-unique" else _UNDECLARED
    if handle in declared.handles:
        return 0
    return _SAME_METHOD if handle in declared.addressed else _OTHER_METHOD

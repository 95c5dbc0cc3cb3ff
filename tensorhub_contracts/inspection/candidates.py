"""What the choice of a contract rests on: the tensors in groups, and each group judged against every contract."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.inspection.declarations import DeclaredContracts, declared_contracts
from tensorhub_contracts.inspection.grouping import Signature, TensorGroups
from tensorhub_contracts.inspection.unit_matching import Finding, UnitJudge, UnitLayout
from tensorhub_contracts.registry.registry import Registry
from tensorhub_contracts.registry.sidecar_names import SidecarNames

Judgement = UnitLayout | tuple[Finding, ...]


class Candidates(msgspec.Struct, frozen=True, dict=True, eq=False):
    """Everything that the choice of a contract rests on. A contract is judged when it is first asked for."""

    checkpoint: Checkpoint
    registry: Registry
    groups: TensorGroups
    declared: DeclaredContracts
    judge: UnitJudge
    known: dict[str, Mapping[Signature, Judgement]] = {}

    @property
    def quantized(self) -> bool:
        """Whether anything in the checkpoint is quantized or claims to scale something."""
        return bool(self.groups.quantized or self.groups.orphans)

    @property
    def quantized_contracts(self) -> tuple[str, ...]:
        """The handles of the contracts that have units."""
        return tuple(handle for handle, contract in self.registry.contracts.items() if contract.quantized)

    def judged(self, handle: str) -> Mapping[Signature, Judgement]:
        """Return what each signature is in a contract; nothing for a contract that has no units."""
        if handle not in self.known:
            contract = self.registry.contracts[handle]
            signatures = self.groups.quantized if contract.quantized else ()
            self.known[handle] = {signature: self.judge.judge(signature, contract) for signature in signatures}
        return self.known[handle]

    def is_full(self, handle: str) -> bool:
        """Whether every unit is in a contract, with no sidecar left over."""
        judged = self.judged(handle)
        return bool(judged) and not self.groups.orphans and all(isinstance(each, UnitLayout) for each in judged.values())

    @cached_property
    def full(self) -> tuple[str, ...]:
        """The contracts that every unit is in, with no sidecar left over."""
        return tuple(handle for handle in self.quantized_contracts if self.is_full(handle))

    def matched(self, handle: str) -> int:
        """Return how many units are in a contract."""
        judged = self.judged(handle)
        return sum(len(self.groups.quantized[signature]) for signature, each in judged.items() if isinstance(each, UnitLayout))


def gather_candidates(checkpoint: Checkpoint, registry: Registry, groups: TensorGroups) -> Candidates:
    """Return what is known of a checkpoint before a contract is chosen."""
    judge = UnitJudge(SidecarNames(registry.sidecars, registry.payloads))
    return Candidates(checkpoint, registry, groups, declared_contracts(checkpoint.declarations, registry), judge)

"""What the choice of a contract rests on: the tensors in groups, and each group judged against every contract."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorhub_contracts.checkpoint import Checkpoint
from tensorhub_contracts.declaration import DeclaredContracts, declared_contracts
from tensorhub_contracts.leaf_names import LeafNames
from tensorhub_contracts.registry import Registry
from tensorhub_contracts.tensor_groups import Signature, TensorGroups
from tensorhub_contracts.unit_matching import Finding, UnitJudge, UnitLayout

Judgement = UnitLayout | tuple[Finding, ...]


class Evidence(msgspec.Struct, frozen=True):
    """Everything that the choice of a contract rests on.

    `judgements` holds, for each quantized contract, what each signature is in it. `full` lists the contracts that
    every unit is in, with no sidecar left over.
    """

    checkpoint: Checkpoint
    registry: Registry
    groups: TensorGroups
    declared: DeclaredContracts
    judgements: Mapping[str, Mapping[Signature, Judgement]]
    full: tuple[str, ...]

    @property
    def quantized(self) -> bool:
        """Whether anything in the checkpoint is quantized or claims to scale something."""
        return bool(self.groups.quantized or self.groups.orphans)

    def matched(self, handle: str) -> int:
        """Return how many units are in a contract."""
        return sum(
            len(self.groups.quantized[signature])
            for signature, judgement in self.judgements.get(handle, {}).items()
            if isinstance(judgement, UnitLayout)
        )


def gather_evidence(checkpoint: Checkpoint, registry: Registry, groups: TensorGroups) -> Evidence:
    """Judge every signature of a checkpoint against every quantized contract."""
    leaf_names = LeafNames(registry.leaves, registry.payloads)
    judge = UnitJudge(leaf_names)
    judgements = {
        contract.handle: {signature: judge.judge(signature, contract) for signature in groups.quantized}
        for contract in registry.contracts.values()
        if contract.quantized
    }
    full = tuple(
        handle
        for handle, by_signature in judgements.items()
        if by_signature and not groups.orphans and all(isinstance(judgement, UnitLayout) for judgement in by_signature.values())
    )
    return Evidence(checkpoint, registry, groups, declared_contracts(checkpoint.declarations, registry), judgements, full)

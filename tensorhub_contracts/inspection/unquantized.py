"""The tensors that nothing scales: which dtypes a contract lets them have."""

from __future__ import annotations

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.grouping import TensorGroups
from tensorhub_contracts.registry.contract import Contract


def count_of_other_dtypes(groups: TensorGroups, contract: Contract) -> int:
    """Return how many unquantized tensors have a dtype that the contract does not admit for their rank."""
    return len(_tensors_of_other_dtypes(groups, contract))


def names_of_other_dtypes(groups: TensorGroups, contract: Contract) -> list[str]:
    """Return the names of those tensors."""
    return [name for name, _, _ in _tensors_of_other_dtypes(groups, contract)]


def unquantized_violations(checkpoint: Checkpoint, groups: TensorGroups, contract: Contract) -> list[Violation]:
    """Return a violation for each of those, or a single `layout-mixed` if a plain checkpoint mixes matrix dtypes.

    The dtype of a checkpoint is never decided by a count: a mixed one is mixed.
    """
    others = _tensors_of_other_dtypes(groups, contract)
    if not contract.quantized and not groups.quantized:
        matrices: dict[str, list[str]] = {}
        for name, geometry in groups.unquantized.items():
            if len(geometry.shape) > 1:
                matrices.setdefault(geometry.dtype, []).append(name)
        if len(matrices) > 1:
            found = "; ".join(f"{dtype}: {len(names):,} such as {names[0]}" for dtype, names in sorted(matrices.items()))
            remedy = "Cast the checkpoint to one dtype where it is made. No majority decides."
            return [
                Violation(code="layout-mixed", object="matrices", expected=f"one dtype, {contract.element}", found=found, remedy=remedy)
            ]
    rule = contract.unquantized
    return [
        Violation(
            code="unquantized-dtype",
            object=name,
            expected=" or ".join(rule.matrix_dtypes if len(shape) > 1 else rule.vector_dtypes),
            found=f"{dtype} {write_shape(shape)}",
            shard=checkpoint.shard_of[name],
        )
        for name, dtype, shape in others
    ]


def _tensors_of_other_dtypes(groups: TensorGroups, contract: Contract) -> list[tuple[str, str, tuple[int, ...]]]:
    matrix, vector = contract.unquantized.matrix_dtypes, contract.unquantized.vector_dtypes
    found: list[tuple[str, str, tuple[int, ...]]] = []
    for name, geometry in groups.unquantized.items():
        if geometry.dtype not in (matrix if len(geometry.shape) > 1 else vector):
            found.append((name, geometry.dtype, geometry.shape))
    return found

"""The tensors that nothing scales: which dtypes a contract lets them have."""

from __future__ import annotations

from collections.abc import Mapping

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.registry.contract import Contract


def count_of_other_dtypes(groups: TensorGroups, contract: Contract) -> int:
    """Return how many unquantized tensors have a dtype that the contract does not admit: all, if it is mixed and they are not."""
    return len(_tensors_of_other_dtypes(groups, contract)) + (len(groups.unquantized) if _all_alike(groups, contract) else 0)


def names_of_other_dtypes(groups: TensorGroups, contract: Contract) -> list[str]:
    """Return the names of those tensors."""
    return list(_tensors_of_other_dtypes(groups, contract))


def unquantized_violations(checkpoint: Checkpoint, groups: TensorGroups, contract: Contract) -> list[Violation]:
    """Return a violation for each of those, and one for a tree whose matrices are all alike in a contract that mixes dtypes."""
    rule, lenient = contract.unquantized, not _vectors_count_as_matrices(groups, contract)
    violations = [
        Violation(
            code="unquantized-dtype",
            object=name,
            expected=" or ".join(rule.vector_dtypes if lenient and len(geometry.shape) < 2 else rule.matrix_dtypes),
            found=f"{geometry.dtype} {write_shape(geometry.shape)}",
            shard=checkpoint.shard_of[name],
        )
        for name, geometry in _tensors_of_other_dtypes(groups, contract).items()
    ]
    alike = _all_alike(groups, contract)
    if alike:
        expected = f"matrices of two dtypes or more: {', '.join(rule.matrix_dtypes)}"
        violations.append(Violation(code="unquantized-dtype", object=checkpoint.path, expected=expected, found=f"{alike} alone"))
    return violations


def matrix_dtypes(groups: TensorGroups) -> dict[str, int]:
    """Return how many matrices have each dtype; of a tree without a matrix, how many vectors and scalars."""
    found: dict[str, int] = {}
    vectors_alone = not _has_matrix(groups)
    for geometry in groups.unquantized.values():
        if vectors_alone or len(geometry.shape) > 1:
            found[geometry.dtype] = found.get(geometry.dtype, 0) + 1
    return found


def _all_alike(groups: TensorGroups, contract: Contract) -> str:
    """Return the one dtype that all matrices have where the contract mixes several, or an empty string."""
    if not contract.unquantized.mixed:
        return ""
    found = matrix_dtypes(groups)
    return next(iter(found)) if len(found) == 1 else ""


def _tensors_of_other_dtypes(groups: TensorGroups, contract: Contract) -> Mapping[str, Geometry]:
    matrix, vector = contract.unquantized.matrix_dtypes, contract.unquantized.vector_dtypes
    if _vectors_count_as_matrices(groups, contract):
        vector = matrix
    found: dict[str, Geometry] = {}
    for name, geometry in groups.unquantized.items():
        if geometry.dtype not in (matrix if len(geometry.shape) > 1 else vector):
            found[name] = geometry
    return found


def _vectors_count_as_matrices(groups: TensorGroups, contract: Contract) -> bool:
    """Whether a contract without units is to judge a tree of vectors alone: else any of them would accept it."""
    return not contract.quantized and not _has_matrix(groups)


def _has_matrix(groups: TensorGroups) -> bool:
    return any(len(geometry.shape) > 1 for geometry in groups.unquantized.values())

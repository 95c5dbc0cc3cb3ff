"""Violations of the whole tree: empty, mixed, without a unit, of another block, in another contract than the one asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declarations import declared_block
from tensorhub_contracts.inspection.grouping import TensorGroups
from tensorhub_contracts.inspection.mixed import mixed_violations
from tensorhub_contracts.inspection.scale_shapes import block_grid
from tensorhub_contracts.inspection.tree.cache_scales import cache_violations
from tensorhub_contracts.inspection.tree.declared_modules import module_violations
from tensorhub_contracts.inspection.tree.undeclared import indistinguishable, stands_undeclared
from tensorhub_contracts.inspection.tree.whole_tree import form_violations, marker_violations, numbering_violations
from tensorhub_contracts.inspection.unit_violations import orphan_violations, packed_violations, unit_violations
from tensorhub_contracts.registry.contract import Contract


def empty_violations(checkpoint: Checkpoint, groups: TensorGroups) -> Iterator[Violation]:
    """A tree without a floating-point tensor is in no layout: that nothing is wrong with it proves nothing.

    Scales of a key or value cache are no weights, and nothing judges them.
    """
    if not checkpoint.tensor_count:
        yield Violation(code="no-tensors", object=checkpoint.path, expected="at least one tensor", found="none in any shard")
    elif not (groups.unquantized or groups.quantized or groups.orphans):
        yield Violation(
            code="layout-unknown",
            object=checkpoint.path,
            expected="floating-point or packed weights",
            found=f"{checkpoint.tensor_count} tensors of other kinds",
        )


def layout_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Everything in the bytes that is not as the contract says: mixed units first, then unit by unit, then sidecars without a weight."""
    yield from mixed_violations(candidates, contract)
    yield from _declared_block_disagrees(candidates, contract)
    if contract.quantized and not candidates.quantized:
        yield Violation(
            code="units-missing",
            object=candidates.checkpoint.path,
            expected=f"at least one unit of {contract.handle}",
            found=f"{len(candidates.groups.unquantized):,} unquantized tensors and no quantized one",
        )
    yield from unit_violations(candidates, contract)
    yield from orphan_violations(candidates)
    yield from packed_violations(candidates, contract)
    yield from cache_violations(candidates)
    checkpoint, groups = candidates.checkpoint, candidates.groups
    yield from marker_violations(checkpoint, groups, contract, candidates.registry)
    yield from numbering_violations(checkpoint, groups)
    yield from form_violations(checkpoint, contract, candidates.forms(contract.handle))
    yield from module_violations(candidates, contract)


def contract_violations(candidates: Candidates, contract: Contract, wanted: Contract | None, *, refused: bool) -> Iterator[Violation]:
    """A contract that was asked for and is not the one found, or one that was found and that nothing here reads."""
    path, matching = candidates.checkpoint.path, candidates.matching_contracts
    if wanted is not None and refused and matching and contract.handle not in matching:
        declared = ", ".join(sorted(candidates.declared.handles)) or "nothing that the registry knows"
        yield Violation(
            code="contract-mismatch",
            object=path,
            expected=contract.handle,
            found=f"declared: {declared}; bytes: {candidates.look_like()}",
            remedy=f"Inspect it without naming a contract, or accept {' or '.join(matching)}.",
            resembles=matching[0],
        )
    if not refused and contract.handle not in candidates.registry.decoded:
        yield Violation(
            code="contract-without-decoder",
            object=path,
            expected="a contract that has a decoder here",
            found=f"{contract.handle}: {candidates.look_like()}",
            remedy=f"Install a plugin whose decoder reads {contract.handle}, or use an export in a contract that has a decoder."
            + candidates.registry.unavailable_note,
            resembles=contract.handle,
        )
    elif refused and wanted is None and matching and _declaration_is_wanting(candidates, contract):
        yield Violation(
            code="layout-undeclared",
            object=path,
            expected="a declaration that agrees with the bytes",
            found=candidates.look_like(),
            resembles=matching[0],
        )


def _declaration_is_wanting(candidates: Candidates, contract: Contract) -> bool:
    """Whether another declaration, or one at all, would make the bytes a checkpoint in some contract."""
    if contract.handle not in candidates.matching_contracts:
        return not indistinguishable(candidates)
    undeclared = not candidates.declared.by_source
    return undeclared and not stands_undeclared(candidates, contract) and not indistinguishable(candidates)


def _declared_block_disagrees(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """A declared block that is not the contract's: say what it asks for and what is there, for one unit of each shape."""
    declared = declared_block(candidates.checkpoint.declarations)
    if contract.block is None or declared is None or declared == contract.block:
        return
    for geometry, names in candidates.groups.quantized.items():
        scale = next((each for each in geometry.sidecars if candidates.judge.role(each.name) == "weight-scale"), None)
        if scale is None or len(geometry.shape) < 2 or scale.name.startswith("{module}"):
            continue
        needed = block_grid(geometry.shape, declared)
        if needed != write_shape(scale.shape):
            yield Violation(
                code="declaration-contradicts-grid",
                object=names[0] + scale.name,
                expected=f"grid {needed} for weight {write_shape(geometry.shape)} under the declared block {write_shape(declared)}",
                found=write_shape(scale.shape),
                shard=candidates.checkpoint.shard_of[names[0]],
            )

"""Violations of the whole tree: empty, mixed, without a unit, of another block, in another contract than the one asked for."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.declared_block import block_contradictions, declared_block
from tensorhub_contracts.inspection.declared.declared_modules import module_violations
from tensorhub_contracts.inspection.declared.undeclared import indistinguishable, stands_undeclared
from tensorhub_contracts.inspection.mixed import mixed_violations
from tensorhub_contracts.inspection.unexplained.undescribed import unexplained_violations
from tensorhub_contracts.inspection.unexplained.unknown_scales import unknown_scale_violations
from tensorhub_contracts.inspection.units.cache_scales import cache_violations
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.inspection.units.unit_violations import orphan_violations, packed_violations, unit_violations
from tensorhub_contracts.inspection.whole_tree import form_violations, marker_violations, numbering_violations
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


def layout_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation | int]:
    """Everything in the bytes that is not as the contract says: mixed units first, then unit by unit, then sidecars without a weight."""
    yield from mixed_violations(candidates, contract)
    if contract.block is not None and declared_block(candidates.checkpoint.declarations) != contract.block:
        yield from block_contradictions(candidates)
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
    yield from unknown_scale_violations(candidates, contract)
    packed = {each.object for each in packed_violations(candidates, contract)}
    expected = f"a tensor that {contract.handle} describes, or bookkeeping: masks, counters, tables of positions"
    yield from (each for each in unexplained_violations(candidates, expected) if isinstance(each, int) or each.object not in packed)
    yield from cache_violations(candidates)
    checkpoint, groups = candidates.checkpoint, candidates.groups
    yield from marker_violations(checkpoint, groups, contract, candidates.registry)
    yield from numbering_violations(checkpoint, groups)
    yield from form_violations(checkpoint, contract, candidates.forms(contract.handle))
    yield from module_violations(candidates, contract)


def contract_violations(candidates: Candidates, contract: Contract, wanted: Contract | None, *, refused: bool) -> Iterator[Violation]:
    """A contract that was asked for and is not the one found, or one that was found and that nothing here reads."""
    if not refused:
        return
    path, matching = candidates.checkpoint.path, candidates.matching_contracts
    if wanted is not None:
        from tensorhub_contracts.inspection.wanted import another_instead  # the same

        yield from another_instead(candidates, wanted)
    if wanted is None and matching and _declaration_is_wanting(candidates, contract):
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

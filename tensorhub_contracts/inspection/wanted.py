"""A contract that was asked for and is not the one that a checkpoint is in: said with both, and with the conversion between them."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.unquantized import count_of_other_dtypes
from tensorhub_contracts.registry.contract import Contract


def unquantized_instead(candidates: Candidates, wanted: Contract) -> list[Violation]:
    """Return `contract-mismatch`, alone, if a quantized contract was asked for and the checkpoint is in an unquantized one."""
    if not wanted.quantized or candidates.quantized or candidates.declared.by_source or candidates.unexplained:
        return []
    for contract in candidates.registry.contracts.values():
        if not contract.quantized and not count_of_other_dtypes(candidates.groups, contract):
            found = f"{contract.handle}: {len(candidates.groups.unquantized):,} unquantized tensors, and none quantized or declared so"
            return [_mismatch(candidates, wanted, found, (contract.handle,))]
    return []


def another_instead(candidates: Candidates, wanted: Contract) -> Iterator[Violation]:
    """Yield `contract-mismatch` if the bytes are in other contracts than the one that was asked for."""
    matching = candidates.matching_contracts
    if matching and wanted.handle not in matching:
        declared = ", ".join(sorted(candidates.declared.handles)) or "nothing that the registry knows"
        yield _mismatch(candidates, wanted, f"declared: {declared}; bytes: {candidates.look_like()}", matching)


def _mismatch(candidates: Candidates, wanted: Contract, found: str, matching: tuple[str, ...]) -> Violation:
    registry = candidates.registry
    read = [handle for handle in matching if handle in registry.decoded] or list(matching)
    remedy = f"Accept {' or '.join(read)}, or make a checkpoint in {wanted.handle}"
    made = next((each for each in registry.conversions if wanted.handle in each.to), None)
    if made is None:
        remedy = f"Accept {' or '.join(read)}, or take an export in {wanted.handle}."
    elif set(matching) & set(made.source):
        command = "produce" if made.kind == "producible" else "decode"
        remedy += f" of it: `tensorhub {command} SRC DST --to {wanted.handle}`."
    else:
        remedy += f" of its unquantized original: `tensorhub produce ORIGINAL DST --to {wanted.handle}`."
    return Violation(
        code="contract-mismatch",
        object=candidates.checkpoint.path,
        expected=wanted.handle,
        found=found,
        remedy=remedy,
        resembles=matching[0],
    )

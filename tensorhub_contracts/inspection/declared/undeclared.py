"""Checkpoints that declare nothing: whether a contract may be proved from their bytes alone."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.declarations import describe_declares
from tensorhub_contracts.registry.contract import Contract


def stands_undeclared(candidates: Candidates, contract: Contract) -> bool:
    """Whether a checkpoint that declares nothing may be in a contract, as far as the contract and the other contracts say."""
    if contract.when_undeclared == "if-unique":
        return candidates.matching_contracts == (contract.handle,)
    return contract.when_undeclared == "allowed"


def indistinguishable(candidates: Candidates) -> tuple[str, ...]:
    """Return the contracts that the bytes of a checkpoint without a declaration are in alike, if that is why none is proved."""
    matching, contracts = candidates.matching_contracts, candidates.registry.contracts
    if candidates.declared.by_source or len(matching) < 2:
        return ()
    return matching if any(contracts[handle].when_undeclared == "if-unique" for handle in matching) else ()


def undeclared_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield what is wrong with a checkpoint that declares nothing and is to be in `contract`."""
    if candidates.declared.by_source or stands_undeclared(candidates, contract):
        return
    alike = indistinguishable(candidates)
    if alike:
        yield Violation(
            code="layout-ambiguous",
            object=candidates.checkpoint.path,
            expected="bytes that are in one contract alone, or a declaration by the producer",
            found=f"every unit is in {' and in '.join(alike)}, which read other numbers from the same bytes",
        )
        return
    if contract.when_undeclared == "if-unique":
        return  # it is not in the contract, and the other violations say why: a declaration would not change that
    expected = f"a declaration of {contract.handle}: {describe_declares(contract)}"
    yield Violation(code="declaration-missing", object="quantization_config", expected=expected, found="none")

"""Declarations that name every quantized module: they must name those that are there, and no other."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.registry.contract import Contract


def module_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield a violation for each module that a declaration of the contract names and that has no unit, and the other way round."""
    for judged in candidates.declared.by_source:
        keys = [each.modules for each in contract.declares if each.source == judged.source.kind and each.modules]
        if not keys or contract.handle not in judged.declares:
            continue
        declared = judged.source.content[keys[0]]
        units = _modules(candidates)
        where = f"{judged.source.where}: {keys[0]}"
        for module in declared:
            if module not in units:
                yield Violation(
                    code="declared-module-missing",
                    object=module,
                    expected=f"a quantized weight in the module, as {where} says",
                    found="none of that module",
                )
        for module, weight in units.items():
            if module not in declared:
                yield Violation(
                    code="module-undeclared",
                    object=weight,
                    expected=f"its module named in {where}",
                    found=f"{module} is not among the {len(declared):,} modules there",
                    shard=candidates.checkpoint.shard_of[weight],
                )


def _modules(candidates: Candidates) -> dict[str, str]:
    """Return the weight of each module that has a quantized one."""
    return {name.removesuffix(geometry.suffix): name for geometry, names in candidates.groups.quantized.items() for name in names}

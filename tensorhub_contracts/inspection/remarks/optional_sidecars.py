"""Optional sidecars that most units of a contract have and some lack: allowed, and seldom meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.registry.contract import Contract

_MODULES_NAMED = 3


def sidecar_gaps(candidates: Candidates, contract: Contract) -> Iterator[str]:
    """Yield a line for each sidecar that more units of one form have than lack it, with the units that lack it.

    A unit that is in the contract without a sidecar shows that the contract does not ask for it.
    """
    units: dict[str, list[tuple[UnitLayout, list[str]]]] = {}
    for geometry, judgement in candidates.judged(contract.handle).items():
        if isinstance(judgement, UnitLayout):
            units.setdefault(judgement.form, []).append((judgement, candidates.groups.quantized[geometry]))
    for layouts in units.values():
        count = sum(len(names) for _, names in layouts)
        having: Counter[str] = Counter()
        for layout, names in layouts:
            having.update({sidecar.name: len(names) for sidecar in layout.sidecars})
        for sidecar, with_it in having.items():
            if count / 2 < with_it < count:
                without = [name for layout, names in layouts if all(each.name != sidecar for each in layout.sidecars) for name in names]
                yield f"{sidecar.lstrip('.')} on {with_it:,} of {count:,} units; {_modules(without)} lack it"


def _modules(names: Iterable[str]) -> str:
    """Write weights by the module that they are in: `experts.7 (down_proj, up_proj)`."""
    members: dict[str, list[str]] = {}
    for name in names:
        parent, _, member = name.removesuffix(".weight").rpartition(".")
        members.setdefault(parent, []).append(member)
    written = [f"{parent or 'the root'} ({', '.join(each)})" for parent, each in list(members.items())[:_MODULES_NAMED]]
    more = sum(map(len, list(members.values())[_MODULES_NAMED:]))
    return ", ".join(written) + (f" and {more:,} more units" if more else "")

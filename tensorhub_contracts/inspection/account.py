"""The account of a checkpoint: every tensor is exactly one of a few kinds, or refused by name; it adds up to all tensors and all bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import attrs

from tensorhub_contracts.checkpoints.geometry import Geometry, byte_length
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.inspection.unquantized import names_of_other_dtypes
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.owned_sidecars import primaries

#: What a tensor can be in the judged contract, in the order of reports.
TensorKind = Literal["weight", "sidecar", "unquantized", "cache-scale", "bookkeeping", "refused"]
KINDS: Final[tuple[TensorKind, ...]] = ("weight", "sidecar", "unquantized", "cache-scale", "bookkeeping", "refused")


@attrs.frozen(slots=False, repr=False)
class AccountRow(Readable):
    """How many tensors of a kind there are, and their bytes in the files."""

    kind: TensorKind
    tensors: int
    bytes: int


@attrs.frozen(slots=False, repr=False)
class Account(Readable):
    """Every tensor of a checkpoint by its kind; `tensors` and `bytes` are the sums over all rows."""

    rows: tuple[AccountRow, ...]
    tensors: int
    bytes: int

    def of(self, kind: TensorKind) -> AccountRow:
        """Return the row of a kind."""
        return next(row for row in self.rows if row.kind == kind)


def account_of(candidates: Candidates, contract: Contract, violations: Iterable[Violation]) -> Account:
    """Return the account of a checkpoint in the contract that it was judged against.

    A tensor that a violation names is refused, and with a unit that is not in the contract all of its tensors are.
    """
    groups, tensors = candidates.groups, candidates.checkpoint.tensors
    refused = {each.object for each in violations if each.object in tensors}
    refused |= {name for name, _ in groups.orphans} | set(candidates.unexplained)
    refused.update(names_of_other_dtypes(groups, contract))
    refused.update(_weights_of(refused, candidates))
    counts = {kind: _Count() for kind in KINDS}
    judged = candidates.judged(contract.handle)
    for geometry, names in groups.quantized.items():
        sound = isinstance(judged.get(geometry), UnitLayout)
        faulty = sum(name in refused for name in names) if sound else len(names)
        own = [each for each in geometry.sidecars if not each.name.startswith("{module}")]  # a shared one is counted once, below
        sidecars = sum(byte_length(each.dtype, each.shape) or 0 for each in own)
        weight = byte_length(geometry.dtype, geometry.shape) or 0
        counts["weight"].add(len(names) - faulty, weight)
        counts["sidecar"].add(len(names) - faulty, sidecars, len(own))
        counts["refused"].add(faulty, weight + sidecars, 1 + len(own))
    loose: tuple[tuple[TensorKind, Mapping[str, Geometry]], ...] = (
        ("unquantized", groups.unquantized),
        ("bookkeeping", {**groups.other, **groups.markers}),
        ("sidecar", {name: tensors[name] for name in groups.shared}),
    )
    for kind, group in loose:
        for name, each in group.items():
            counts["refused" if name in refused else kind].add(1, each.byte_length or 0)
    for name in (*groups.cache_scales, *(name for name, _ in groups.orphans)):
        counts["refused" if name in refused else "cache-scale"].add(1, tensors[name].byte_length or 0)
    rows = tuple(AccountRow(kind, counts[kind].tensors, counts[kind].bytes) for kind in KINDS)
    return Account(rows, sum(row.tensors for row in rows), sum(row.bytes for row in rows))


def _weights_of(names: Iterable[str], candidates: Candidates) -> list[str]:
    """Return the weights whose sidecars these are: a unit is refused as a whole."""
    sidecar_names, weights = candidates.registry.sidecar_names, candidates.groups.geometry_of
    found = []
    for name in names:
        sidecar = sidecar_names[name.rpartition(".")[2]] if name not in weights else None
        found += [each for each in primaries(name, sidecar) if each in weights] if sidecar is not None else []
    return found


class _Count:
    """Tensors and bytes of a kind, while they are counted."""

    def __init__(self) -> None:
        self.tensors = self.bytes = 0

    def add(self, number: int, size: int, tensors: int = 1) -> None:
        """Count `number` groups of so many tensors, of `size` bytes each group."""
        self.tensors += number * tensors
        self.bytes += number * size

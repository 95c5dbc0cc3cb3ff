"""What the choice of a contract rests on: the tensors in groups, and each group judged against every contract."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.inspection.declared.declarations import DeclaredContracts, declared_contracts
from tensorhub_contracts.inspection.unexplained.bookkeeping import unexplained
from tensorhub_contracts.inspection.units.scale_shapes import describe_grid
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups, UnitGeometry
from tensorhub_contracts.inspection.units.unit_matching import Finding, UnitJudge, UnitLayout
from tensorhub_contracts.inspection.whole_tree import fits_as_a_whole, has_required_forms
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.registry import Registry

Judgement = UnitLayout | tuple[Finding, ...]


@attrs.frozen(slots=False, repr=False, eq=False)
class Candidates(Readable):
    """Everything that the choice of a contract rests on. A contract is judged when it is first asked for."""

    checkpoint: Checkpoint
    registry: Registry
    groups: TensorGroups
    declared: DeclaredContracts
    judge: UnitJudge
    #: What was judged so far, by handle.
    known: dict[str, Mapping[UnitGeometry, Judgement]] = attrs.field(factory=dict)

    @property
    def quantized(self) -> bool:
        """Whether anything in the checkpoint is quantized or claims to scale something."""
        return bool(self.groups.quantized or self.groups.orphans)

    @cached_property
    def unexplained(self) -> tuple[str, ...]:
        """The integer, boolean and complex tensors that are in no unit and that no rule explains; see `bookkeeping`."""
        groups, registry = self.groups, self.registry
        if not groups.other:
            return ()
        total = self.checkpoint.payload_bytes
        floats = {**groups.unquantized, **{name: self.checkpoint.tensors[name] for name, _ in groups.orphans}}
        return tuple(unexplained(groups.other, groups.geometry_of, floats, total, registry.bookkeeping))

    @property
    def quantized_contracts(self) -> tuple[str, ...]:
        """The handles of the contracts that have units."""
        return tuple(handle for handle, contract in self.registry.contracts.items() if contract.quantized)

    def judged(self, handle: str) -> Mapping[UnitGeometry, Judgement]:
        """Return what each geometry is in a contract; nothing for a contract that has no units."""
        if handle not in self.known:
            contract = self.registry.contracts[handle]
            geometries = self.groups.quantized if contract.quantized else ()
            self.known[handle] = {geometry: self.judge.judge(geometry, contract) for geometry in geometries}
        return self.known[handle]

    def matches_all(self, handle: str) -> bool:
        """Whether every unit is in a contract, with no sidecar left over, and the whole is as the contract says."""
        return self.matches_units(handle) and fits_as_a_whole(self.groups, self.registry.contracts[handle], self.forms(handle))

    def matches_units(self, handle: str) -> bool:
        """Whether every unit is in a contract, with no sidecar left over."""
        judged = self.judged(handle)
        return bool(judged) and not self.groups.orphans and all(isinstance(each, UnitLayout) for each in judged.values())

    def forms(self, handle: str) -> set[str]:
        """Return the forms of a contract that units are in."""
        return {each.form for each in self.judged(handle).values() if isinstance(each, UnitLayout)}

    def _may_be(self, handle: str) -> bool:
        """Whether what looks like a contract may be in it: a missing scale is a fault there, and units have the forms that it requires."""
        contract = self.registry.contracts[handle]
        return not contract.whole_tree and has_required_forms(contract, self.forms(handle))

    @cached_property
    def matching_contracts(self) -> tuple[str, ...]:
        """The contracts that every unit is in, with no sidecar left over."""
        return tuple(handle for handle in self.quantized_contracts if self.matches_all(handle))

    def matched(self, handle: str) -> int:
        """Return how many units are in a contract."""
        judged = self.judged(handle)
        return sum(len(self.groups.quantized[geometry]) for geometry, each in judged.items() if isinstance(each, UnitLayout))

    def contracts_of(self, geometry: UnitGeometry) -> list[str]:
        """Return the contracts that units of a geometry are in, but for one in which a missing scale is no fault."""
        return [
            handle for handle in self.quantized_contracts if isinstance(self.judged(handle)[geometry], UnitLayout) and self._may_be(handle)
        ]

    @cached_property
    def resembles(self) -> tuple[str, ...]:
        """The contracts that all units are in, whatever is declared, or else those that some are in, most units first."""
        if self.matching_contracts:
            return self.matching_contracts
        counts = {handle: self.matched(handle) for handle in self.quantized_contracts if self._may_be(handle)}
        return tuple(handle for handle, count in sorted(counts.items(), key=lambda item: -item[1]) if count)

    def look_like(self) -> str:
        """Return, for a message, what the first unit is made of and which contracts all units are in."""
        geometry = next(iter(self.groups.quantized), None)
        if geometry is None:
            return "no unit: nothing in the tree is quantized"
        known = " or ".join(self.matching_contracts[:2])
        return f"units like {describe_unit(geometry)}" + (f", as in {known}" if known else "")


def gather_candidates(checkpoint: Checkpoint, registry: Registry, groups: TensorGroups) -> Candidates:
    """Return what is known of a checkpoint before a contract is chosen."""
    declared = declared_contracts(checkpoint.declarations, registry)
    return Candidates(checkpoint, registry, groups, declared, UnitJudge(registry.sidecar_names))


def describe_unit(geometry: UnitGeometry) -> str:
    """Write a unit's tensors for a message: weight, then each sidecar with what its shape looks like."""
    parts = [f"{geometry.suffix or 'parameter'} {geometry.dtype} {write_shape(geometry.shape)}"]
    for sidecar in geometry.sidecars:
        words = describe_grid(geometry.shape, sidecar.shape)
        parts.append(f"{sidecar.name} {sidecar.dtype} {write_shape(sidecar.shape)}" + (f" ({words})" if words else ""))
    return ", ".join(parts)

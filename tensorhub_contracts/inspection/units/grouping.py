"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from tensorhub_contracts.checkpoints.geometry import NARROW_FLOAT, PACKED, WIDE_FLOAT, Geometry
from tensorhub_contracts.inspection.units.growing_units import GrowingUnit, NewUnits, SidecarLists, WithSidecar
from tensorhub_contracts.inspection.units.tensor_groups import Sidecar, TensorGroups, UnitGeometry
from tensorhub_contracts.registry.contract import SidecarName
from tensorhub_contracts.registry.owned_sidecars import Held, primaries, settle_owned
from tensorhub_contracts.registry.sidecar_names import SidecarNames

if TYPE_CHECKING:
    from tensorhub_contracts.inspection.units.numbered_weights import NumberedWeights, Sharing


def _numbered(weights: Iterable[str], sidecar_names: SidecarNames) -> NumberedWeights:
    from tensorhub_contracts.inspection.units.numbered_weights import NumberedWeights  # only where a sidecar has no weight

    return NumberedWeights(weights, sidecar_names)


class Grouping:
    """Groups tensors by name alone, in batches; a sidecar may come in another batch than its weight.

    A batch is one shard's, taken while its names are still in the processor's cache: with 90,000 names that is what
    takes the time.
    """

    def __init__(self, sidecar_names: SidecarNames) -> None:
        self._sidecar_names = sidecar_names
        self._batches: list[dict[str, GrowingUnit]] = []
        self._new_units: dict[str, NewUnits] = {".weight": NewUnits(".weight")}
        self._lists = SidecarLists(sidecar_names)
        self._with_sidecar = {sidecar.suffix: WithSidecar(sidecar.suffix) for sidecar in sidecar_names.sidecars}
        self._waiting: list[tuple[str, SidecarName, Geometry]] = []
        #: Tensors whose names mean something to a plugin: what they are is settled when all tensors are known.
        self._owned: list[Held] = []
        self._unquantized: dict[str, Geometry] = {}
        self._other: dict[str, Geometry] = {}

    def add(self, batch: Iterable[tuple[str, Geometry]]) -> None:
        """Sort names into primary tensors, sidecars, unquantized and other, and give sidecars to the primaries of the batch."""
        primaries: dict[str, GrowingUnit] = {}
        unquantized, other, lists = self._unquantized, self._other, self._lists
        weights = self._new_units[".weight"]
        for name, geometry in batch:
            # No sidecar is called "weight", so that most names are settled without cutting out their last segment.
            if name.endswith(".weight"):
                unit = weights[geometry]
                if unit is not None:
                    primaries[name] = unit
                    continue
            elif (listed := lists[name[name.rfind(".") + 1 :]]) is not None:
                listed.append((name, geometry))
                continue
            elif geometry.dtype in NARROW_FLOAT:
                primaries[name] = self._new_unit(name, geometry)
                continue
            (unquantized if geometry.dtype in WIDE_FLOAT else other)[name] = geometry
        for sidecar in self._sidecar_names.sidecars:
            sidecars = lists.of_sidecar[sidecar.suffix]
            if sidecars:
                if sidecar in self._sidecar_names.owned:
                    self._owned += ((name, sidecar, geometry) for name, geometry in sidecars)
                else:
                    self._attach(sidecars, sidecar, primaries)
                sidecars.clear()
        self._batches.append(primaries)

    def _attach(self, sidecars: list[tuple[str, Geometry]], sidecar: SidecarName, primaries: dict[str, GrowingUnit]) -> None:
        """Give the sidecars of one name to the primary tensors of their batch; the others wait, and those that belong to none."""
        if not sidecar.beside:
            self._waiting.extend((name, sidecar, geometry) for name, geometry in sidecars)
            return
        with_sidecar, waiting = self._with_sidecar[sidecar.suffix], self._waiting
        cut = -len(sidecar.suffix)
        beside = sidecar.beside[0]
        for name, geometry in sidecars:
            primary = name[:cut] + beside if beside else name[:cut]
            unit = primaries.get(primary)
            if unit is None:
                waiting.append((name, sidecar, geometry))
            else:
                primaries[primary] = with_sidecar[unit, geometry]

    def finish(self) -> TensorGroups:
        """Return the groups of all that was added."""
        late: dict[str, GrowingUnit] = {}
        for name, geometry in self._other.items():
            if self._sidecar_names.payload_of(name.rpartition(".")[2], geometry.dtype) is not None:
                late[name] = self._new_unit(name, geometry)
        self._batches.append(late)
        orphans: list[tuple[str, SidecarName]] = []
        cache_scales: list[str] = []
        shared: dict[str, Mapping[int, str]] = {}
        # Which batch holds a primary tensor is worked out only if a sidecar is looking for one.
        batch_of = {name: batch for batch in self._batches for name in batch} if self._waiting or self._owned else {}
        self._settle_owned(late, batch_of)
        numbered = _numbered(batch_of, self._sidecar_names) if self._waiting else None
        for name, sidecar, geometry in self._waiting:
            if sidecar.role == "cache-scale":
                cache_scales.append(name)
            elif not self._attach_late(name, sidecar, geometry, batch_of):
                if name.removesuffix(sidecar.suffix).rpartition(".")[2] in sidecar.alone:
                    cache_scales.append(name)
                elif numbered is not None and (sharing := numbered.of_sidecar(name, sidecar.suffix)) is not None:
                    shared[name] = sharing.weights
                    self._share(sharing, sidecar, geometry, batch_of)
                elif not sidecar.needs_quantized:
                    orphans.append((name, sidecar))
                elif geometry.dtype in NARROW_FLOAT:  # an ordinary parameter that is called like a sidecar
                    late[name] = self._new_unit(name, geometry)
                else:
                    (self._unquantized if geometry.dtype in WIDE_FLOAT else self._other)[name] = geometry
        other = {name: geometry for name, geometry in self._other.items() if name not in late}
        markers = dict(self._lists.markers)
        return TensorGroups(self._by_geometry(), tuple(orphans), tuple(cache_scales), self._unquantized, other, markers, shared)

    def _share(self, sharing: Sharing, sidecar: SidecarName, geometry: Geometry, batch_of: dict[str, dict[str, GrowingUnit]]) -> None:
        """Give a module's sidecar to each of its numbered weights."""
        made: dict[GrowingUnit, GrowingUnit] = {}
        entry = Sidecar("{module}" + sidecar.suffix, geometry.dtype, geometry.shape)
        for name in sharing.weights.values():
            batch = batch_of[name]
            unit = batch[name]
            if unit not in made:
                made[unit] = GrowingUnit(sharing.name.before + "{number}" + sharing.name.after, unit.geometry, (*unit.sidecars, entry))
            batch[name] = made[unit]

    def _settle_owned(self, late: dict[str, GrowingUnit], batch_of: dict[str, dict[str, GrowingUnit]]) -> None:
        """Let plugins' sidecars wait with the others, and sort what turns out to be ordinary."""
        settled = settle_owned(
            self._owned,
            self._sidecar_names,
            lambda name: name in batch_of or name in self._unquantized or name in self._other,
            lambda name, sidecar: self._primary(name, sidecar, batch_of) is not None,
        )
        for name, sidecar, geometry in list(settled):  # an ordinary one counts for none of the others
            if sidecar is not None:
                self._waiting.append((name, sidecar, geometry))
            elif geometry.dtype in NARROW_FLOAT or self._sidecar_names.payload_of(name.rpartition(".")[2], geometry.dtype):
                late[name], batch_of[name] = self._new_unit(name, geometry), late
            else:
                (self._unquantized if geometry.dtype in WIDE_FLOAT else self._other)[name] = geometry

    def _primary(self, name: str, sidecar: SidecarName, batch_of: Mapping[str, dict[str, GrowingUnit]]) -> str | None:
        """Return the name of the quantized tensor that a sidecar belongs to, in any batch.

        An 8-bit integer tensor becomes quantized when a sidecar belongs to it: that is what makes it packed.
        """
        for primary in primaries(name, sidecar):
            if primary in batch_of:
                return primary
            if primary in self._unquantized:
                return None
            packed = self._other.get(primary)
            if packed is not None and packed.dtype in PACKED:
                return primary
        return None

    def _attach_late(self, name: str, sidecar: SidecarName, geometry: Geometry, batch_of: dict[str, dict[str, GrowingUnit]]) -> bool:
        """Give a sidecar to its primary tensor; say whether it has one."""
        primary = self._primary(name, sidecar, batch_of)
        if primary is None:
            return False
        if primary not in batch_of:
            late = batch_of[primary] = self._batches[-1]
            late[primary] = self._new_unit(primary, self._other[primary])
        batch = batch_of[primary]
        batch[primary] = self._with_sidecar[sidecar.suffix][batch[primary], geometry]
        return True

    def _new_unit(self, name: str, geometry: Geometry) -> GrowingUnit:
        suffix = self._sidecar_names.primary_suffix(name)
        if suffix not in self._new_units:
            self._new_units[suffix] = NewUnits(suffix)
        return self._new_units[suffix].of_packed(geometry)

    def _by_geometry(self) -> dict[UnitGeometry, list[str]]:
        """Collect the names of each geometry, in the order of the headers."""
        found: list[GrowingUnit] = []
        for batch in self._batches:
            for name, unit in batch.items():
                if not unit.names:
                    found.append(unit)
                unit.names.append(name)
        quantized: dict[UnitGeometry, list[str]] = {}
        for each in found:
            sidecars = tuple(sorted(each.sidecars, key=attrs.astuple))
            geometry = UnitGeometry(each.suffix, each.geometry.dtype, each.geometry.shape, sidecars)
            quantized.setdefault(geometry, []).extend(each.names)
        return quantized


def group_tensors(tensors: Mapping[str, Geometry], sidecar_names: SidecarNames) -> TensorGroups:
    """Group the tensors of a checkpoint in one batch."""
    grouping = Grouping(sidecar_names)
    grouping.add(tensors.items())
    return grouping.finish()

"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs

from tensorhub_contracts.checkpoints.geometry import NARROW_FLOAT, PACKED, WIDE_FLOAT, Geometry
from tensorhub_contracts.inspection.tree.numbered_weights import NumberedWeights, Sharing
from tensorhub_contracts.inspection.tree.units_in_making import NewUnits, UnitInMaking
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import SidecarName
from tensorhub_contracts.registry.sidecar_names import SidecarNames


@attrs.frozen(repr=False)
class Sidecar(Readable):
    """A sidecar of a unit: the suffix of its name that the registry knows, its dtype and its shape.

    One that lies beside the unit's module, and that numbered weights share, is called `{module}` and its suffix.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


@attrs.frozen(repr=False, cache_hash=True)
class UnitGeometry(Readable):
    """What one quantized tensor looks like, without its name. Thousands of units share few geometries: each is judged once.

    `suffix` is what the tensor's name ends in: `.weight`, a payload's suffix, or nothing for a bare parameter; for a weight
    that shares a sidecar with others, what follows the name of their module: `.shard_{number}.weight`. `dtype` and
    `shape` are the tensor's own, as stored; `sidecars` are sorted by name.
    """

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    sidecars: tuple[Sidecar, ...]


@attrs.frozen(repr=False)
class TensorGroups(Readable):
    """Every tensor of a checkpoint, exactly once: in a unit, an orphan, a cache scale, unquantized or other."""

    #: The names of the weights of each geometry.
    quantized: Mapping[UnitGeometry, list[str]]
    #: Sidecars that belong to no quantized tensor, each with what its name means.
    orphans: tuple[tuple[str, SidecarName], ...]
    #: Scales of the key and value cache, which scale no weight.
    cache_scales: tuple[str, ...]
    #: Floating-point tensors of 16 bits or more.
    unquantized: Mapping[str, Geometry]
    #: Integers, booleans and complex numbers.
    other: Mapping[str, Geometry]
    #: Tensors that say how a checkpoint is stored and are no part of the model.
    markers: Mapping[str, Geometry] = attrs.field(factory=dict)
    #: The numbered weights that share each sidecar, by its name.
    shared: Mapping[str, Mapping[int, str]] = attrs.field(factory=dict)

    @cached_property
    def shared_by(self) -> Mapping[str, str]:
        """The sidecar that a weight shares with others, by the name of the weight."""
        return {weight: sidecar for sidecar, weights in self.shared.items() for weight in weights.values()}

    @cached_property
    def geometry_of(self) -> Mapping[str, UnitGeometry]:
        """The geometry of each quantized tensor."""
        return {name: geometry for geometry, names in self.quantized.items() for name in names}


class _SidecarLists(dict[str, "list[tuple[str, Geometry]] | None"]):
    """Maps the last segment of a name to the list that collects the sidecars of its name, or None; remembers each answer."""

    def __init__(self, sidecar_names: SidecarNames) -> None:
        super().__init__()
        self.sidecar_names = sidecar_names
        self.of_sidecar: dict[str, list[tuple[str, Geometry]]] = {sidecar.suffix: [] for sidecar in sidecar_names.sidecars}
        self.markers: list[tuple[str, Geometry]] = []

    def __missing__(self, segment: str) -> list[tuple[str, Geometry]] | None:
        if segment in self.sidecar_names.markers:
            self[segment] = self.markers
            return self.markers
        sidecar = self.sidecar_names[segment]
        self[segment] = listed = None if sidecar is None else self.of_sidecar[sidecar.suffix]
        return listed


class _WithSidecar(dict[tuple[UnitInMaking, Geometry], UnitInMaking]):
    """Makes the unit that another one becomes when a sidecar of this name is found."""

    def __init__(self, sidecar_suffix: str) -> None:
        super().__init__()
        self.sidecar_suffix = sidecar_suffix

    def __missing__(self, step: tuple[UnitInMaking, Geometry]) -> UnitInMaking:
        unit, geometry = step
        sidecars = (*unit.sidecars, Sidecar(self.sidecar_suffix, geometry.dtype, geometry.shape))
        self[step] = made = UnitInMaking(unit.suffix, unit.geometry, sidecars)
        return made


class Grouping:
    """Groups tensors by name alone, in batches; a sidecar may come in another batch than its weight.

    A batch is one shard's, taken while its names are still in the processor's cache: with 90,000 names that is what
    takes the time.
    """

    def __init__(self, sidecar_names: SidecarNames) -> None:
        self._sidecar_names = sidecar_names
        self._batches: list[dict[str, UnitInMaking]] = []
        self._new_units: dict[str, NewUnits] = {".weight": NewUnits(".weight")}
        self._lists = _SidecarLists(sidecar_names)
        self._with_sidecar = {sidecar.suffix: _WithSidecar(sidecar.suffix) for sidecar in sidecar_names.sidecars}
        self._waiting: list[tuple[str, SidecarName, Geometry]] = []
        self._unquantized: dict[str, Geometry] = {}
        self._other: dict[str, Geometry] = {}

    def add(self, batch: Iterable[tuple[str, Geometry]]) -> None:
        """Sort names into primary tensors, sidecars, unquantized and other, and give sidecars to the primaries of the batch."""
        primaries: dict[str, UnitInMaking] = {}
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
                self._attach(sidecars, sidecar, primaries)
                sidecars.clear()
        self._batches.append(primaries)

    def _attach(self, sidecars: list[tuple[str, Geometry]], sidecar: SidecarName, primaries: dict[str, UnitInMaking]) -> None:
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
        late: dict[str, UnitInMaking] = {}
        for name, geometry in self._other.items():
            if self._sidecar_names.payload_of(name.rpartition(".")[2], geometry.dtype) is not None:
                late[name] = self._new_unit(name, geometry)
        self._batches.append(late)
        orphans: list[tuple[str, SidecarName]] = []
        cache_scales: list[str] = []
        shared: dict[str, Mapping[int, str]] = {}
        # Which batch holds a primary tensor is worked out only if a sidecar is looking for one.
        batch_of = {name: batch for batch in self._batches for name in batch} if self._waiting else {}
        numbered = NumberedWeights(batch_of, self._sidecar_names)
        for name, sidecar, geometry in self._waiting:
            if sidecar.role == "cache-scale":
                cache_scales.append(name)
            elif not self._attach_late(name, sidecar, geometry, batch_of):
                if name.removesuffix(sidecar.suffix).rpartition(".")[2] in sidecar.alone:
                    cache_scales.append(name)
                elif (sharing := numbered.of_sidecar(name, sidecar.suffix)) is not None:
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

    def _share(self, sharing: Sharing, sidecar: SidecarName, geometry: Geometry, batch_of: dict[str, dict[str, UnitInMaking]]) -> None:
        """Give a module's sidecar to each of its numbered weights."""
        made: dict[UnitInMaking, UnitInMaking] = {}
        entry = Sidecar("{module}" + sidecar.suffix, geometry.dtype, geometry.shape)
        for name in sharing.weights.values():
            batch = batch_of[name]
            unit = batch[name]
            if unit not in made:
                made[unit] = UnitInMaking(sharing.name.before + "{number}" + sharing.name.after, unit.geometry, (*unit.sidecars, entry))
            batch[name] = made[unit]

    def _attach_late(self, name: str, sidecar: SidecarName, geometry: Geometry, batch_of: dict[str, dict[str, UnitInMaking]]) -> bool:
        """Give a sidecar to its primary tensor, whatever batch it is in; say whether there is one.

        An 8-bit integer tensor becomes a primary one when a sidecar belongs to it: that is what makes it packed.
        """
        stem = name.removesuffix(sidecar.suffix)
        for primary in (stem + each for each in sidecar.beside):
            if primary in batch_of:
                batch = batch_of[primary]
                batch[primary] = self._with_sidecar[sidecar.suffix][batch[primary], geometry]
                return True
            if primary in self._unquantized:
                return False
            packed = self._other.get(primary)
            if packed is not None and packed.dtype in PACKED:
                late = batch_of[primary] = self._batches[-1]
                late[primary] = self._with_sidecar[sidecar.suffix][self._new_unit(primary, packed), geometry]
                return True
        return False

    def _new_unit(self, name: str, geometry: Geometry) -> UnitInMaking:
        suffix = self._sidecar_names.primary_suffix(name)
        if suffix not in self._new_units:
            self._new_units[suffix] = NewUnits(suffix)
        return self._new_units[suffix].of_packed(geometry)

    def _by_geometry(self) -> dict[UnitGeometry, list[str]]:
        """Collect the names of each geometry, in the order of the headers."""
        found: list[UnitInMaking] = []
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

"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tensorhub_contracts.checkpoints.geometry import NARROW_FLOAT, PACKED, WIDE_FLOAT, Geometry
from tensorhub_contracts.registry.contract import SidecarName
from tensorhub_contracts.registry.sidecar_names import SidecarNames

#: A sidecar of a signature: the sidecar's suffix, dtype and shape.
Side = tuple[str, str, tuple[int, ...]]

#: What one quantized tensor looks like, without its name: what its name ends in (`.weight`, a payload's suffix or
#: nothing), dtype, shape, sidecars sorted by name. Thousands of units share few signatures, so each is judged once.
Signature = tuple[str, str, tuple[int, ...], tuple[Side, ...]]


class TensorGroups(msgspec.Struct, frozen=True):
    """Every tensor of a checkpoint, exactly once: in a quantized group, an orphan, a cache scale, unquantized or other.

    `quantized` maps a signature to the names of the primary tensors that have it. `orphans` are sidecars that belong
    to no quantized tensor, with their sidecar. `unquantized` and `other` map the names of the rest to their geometry:
    floating-point values of 16 bits or more, and integers, booleans and complex numbers.
    """

    quantized: Mapping[Signature, list[str]]
    orphans: tuple[tuple[str, SidecarName], ...]
    cache_scales: tuple[str, ...]
    unquantized: Mapping[str, Geometry]
    other: Mapping[str, Geometry]


class _Growing:
    """A signature while its sidecars are found one by one. Equal ones are one object, told apart by identity alone."""

    __slots__ = ("geometry", "names", "sides", "suffix")

    def __init__(self, suffix: str, geometry: Geometry, sides: tuple[Side, ...]) -> None:
        self.suffix = suffix
        self.geometry = geometry
        self.sides = sides
        self.names: list[str] = []


class _Seeds(dict[Geometry, "_Growing | None"]):
    """Makes one signature without sidecars for each geometry, for names that end in `suffix`.

    Values of 16 bits and more and integers have none: under a name like that they are not quantized.
    """

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def __missing__(self, geometry: Geometry) -> _Growing | None:
        self[geometry] = made = _Growing(self.suffix, geometry, ()) if geometry.dtype in NARROW_FLOAT else None
        return made

    def of_packed(self, geometry: Geometry) -> _Growing:
        """Return the signature of a tensor that is known to be quantized, whatever its dtype."""
        made = self[geometry]
        if made is None:
            made = self[geometry] = _Growing(self.suffix, geometry, ())
        return made


class _Sinks(dict[str, "list[tuple[str, Geometry]] | None"]):
    """Maps the last segment of a name to the list that collects the sidecars of its name, or None; remembers each answer."""

    def __init__(self, sidecar_names: SidecarNames) -> None:
        super().__init__()
        self.sidecar_names = sidecar_names
        self.of_sidecar: dict[str, list[tuple[str, Geometry]]] = {sidecar.suffix: [] for sidecar in sidecar_names.sidecars}

    def __missing__(self, segment: str) -> list[tuple[str, Geometry]] | None:
        sidecar = self.sidecar_names[segment]
        self[segment] = sink = None if sidecar is None else self.of_sidecar[sidecar.suffix]
        return sink


class _Steps(dict[tuple[_Growing, Geometry], _Growing]):
    """Makes the signature that another one becomes when a sidecar with this sidecar is found."""

    def __init__(self, sidecar_suffix: str) -> None:
        super().__init__()
        self.sidecar_suffix = sidecar_suffix

    def __missing__(self, step: tuple[_Growing, Geometry]) -> _Growing:
        growing, geometry = step
        sides = (*growing.sides, (self.sidecar_suffix, geometry.dtype, geometry.shape))
        self[step] = made = _Growing(growing.suffix, growing.geometry, sides)
        return made


class Grouping:
    """Groups tensors by name alone, in batches; a sidecar may come in another batch than its weight.

    A batch is one shard's, taken while its names are still in the processor's cache: with 90,000 names that is what
    takes the time.
    """

    def __init__(self, sidecar_names: SidecarNames) -> None:
        self._leaf_names = sidecar_names
        self._batches: list[dict[str, _Growing]] = []
        self._seeds: dict[str, _Seeds] = {".weight": _Seeds(".weight")}
        self._sinks = _Sinks(sidecar_names)
        self._steps = {sidecar.suffix: _Steps(sidecar.suffix) for sidecar in sidecar_names.sidecars}
        self._waiting: list[tuple[str, SidecarName, Geometry]] = []
        self._dense: dict[str, Geometry] = {}
        self._other: dict[str, Geometry] = {}

    def add(self, batch: Iterable[tuple[str, Geometry]]) -> None:
        """Sort names into primary tensors, sidecars, unquantized and other, and give sidecars to the primaries of the batch."""
        primaries: dict[str, _Growing] = {}
        unquantized, other, sinks = self._dense, self._other, self._sinks
        weights = self._seeds[".weight"]
        for name, geometry in batch:
            # No sidecar is called "weight", so that most names are settled without cutting out their last segment.
            if name.endswith(".weight"):
                growing = weights[geometry]
                if growing is not None:
                    primaries[name] = growing
                    continue
            elif (sink := sinks[name[name.rfind(".") + 1 :]]) is not None:
                sink.append((name, geometry))
                continue
            elif geometry.dtype in NARROW_FLOAT:
                primaries[name] = self._seed(name, geometry)
                continue
            (unquantized if geometry.dtype in WIDE_FLOAT else other)[name] = geometry
        for sidecar in self._leaf_names.sidecars:
            sidecars = sinks.of_sidecar[sidecar.suffix]
            if sidecars:
                self._attach(sidecars, sidecar, primaries)
                sidecars.clear()
        self._batches.append(primaries)

    def _attach(self, sidecars: list[tuple[str, Geometry]], sidecar: SidecarName, primaries: dict[str, _Growing]) -> None:
        """Give the sidecars of one name to the primary tensors of their batch; the others wait."""
        steps, waiting = self._steps[sidecar.suffix], self._waiting
        cut = -len(sidecar.suffix)
        beside = sidecar.beside[0] if sidecar.beside else ""
        for name, geometry in sidecars:
            primary = name[:cut] + beside if beside else name[:cut]
            growing = primaries.get(primary)
            if growing is None:
                waiting.append((name, sidecar, geometry))
            else:
                primaries[primary] = steps[growing, geometry]

    def finish(self) -> TensorGroups:
        """Return the groups of all that was added."""
        late: dict[str, _Growing] = {}
        for name, geometry in self._other.items():
            if self._leaf_names.payload_of(name.rpartition(".")[2], geometry.dtype) is not None:
                late[name] = self._seed(name, geometry)
        self._batches.append(late)
        orphans: list[tuple[str, SidecarName]] = []
        cache_scales: list[str] = []
        # Which batch holds a primary tensor is worked out only if a sidecar is looking for one.
        batch_of = {name: batch for batch in self._batches for name in batch} if self._waiting else {}
        for name, sidecar, geometry in self._waiting:
            if sidecar.role == "cache-scale":
                cache_scales.append(name)
            elif not self._attach_late(name, sidecar, geometry, batch_of):
                if not sidecar.needs_quantized:
                    orphans.append((name, sidecar))
                elif geometry.dtype in NARROW_FLOAT:  # an ordinary parameter that is called like a sidecar
                    late[name] = self._seed(name, geometry)
                else:
                    (self._dense if geometry.dtype in WIDE_FLOAT else self._other)[name] = geometry
        other = {name: geometry for name, geometry in self._other.items() if name not in late}
        return TensorGroups(self._by_signature(), tuple(orphans), tuple(cache_scales), self._dense, other)

    def _attach_late(self, name: str, sidecar: SidecarName, geometry: Geometry, batch_of: dict[str, dict[str, _Growing]]) -> bool:
        """Give a sidecar to its primary tensor, whatever batch it is in; say whether there is one.

        An 8-bit integer tensor becomes a primary one when a sidecar belongs to it: that is what makes it packed.
        """
        stem = name.removesuffix(sidecar.suffix)
        for primary in (stem + each for each in sidecar.beside):
            if primary in batch_of:
                batch = batch_of[primary]
                batch[primary] = self._steps[sidecar.suffix][batch[primary], geometry]
                return True
            if primary in self._dense:
                return False
            packed = self._other.get(primary)
            if packed is not None and packed.dtype in PACKED:
                late = batch_of[primary] = self._batches[-1]
                late[primary] = self._steps[sidecar.suffix][self._seed(primary, packed), geometry]
                return True
        return False

    def _seed(self, name: str, geometry: Geometry) -> _Growing:
        suffix = self._leaf_names.primary_suffix(name)
        if suffix not in self._seeds:
            self._seeds[suffix] = _Seeds(suffix)
        return self._seeds[suffix].of_packed(geometry)

    def _by_signature(self) -> dict[Signature, list[str]]:
        """Collect the names of each signature, in the order of the headers."""
        found: list[_Growing] = []
        for batch in self._batches:
            for name, growing in batch.items():
                if not growing.names:
                    found.append(growing)
                growing.names.append(name)
        quantized: dict[Signature, list[str]] = {}
        for each in found:
            signature = (each.suffix, each.geometry.dtype, each.geometry.shape, tuple(sorted(each.sides)))
            quantized.setdefault(signature, []).extend(each.names)
        return quantized


def group_tensors(tensors: Mapping[str, Geometry], sidecar_names: SidecarNames) -> TensorGroups:
    """Group the tensors of a checkpoint in one batch."""
    grouping = Grouping(sidecar_names)
    grouping.add(tensors.items())
    return grouping.finish()

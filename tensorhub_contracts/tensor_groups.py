"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorhub_contracts.contract import Leaf
from tensorhub_contracts.dtypes import DENSE, NARROW_FLOAT, PACKED
from tensorhub_contracts.leaf_names import LeafNames
from tensorhub_contracts.tensor_entry import Geometry

#: A sidecar of a signature: the leaf's suffix, dtype and shape.
Side = tuple[str, str, tuple[int, ...]]

#: What one quantized tensor looks like, without its name: what its name ends in (`.weight`, a payload's suffix or
#: nothing), dtype, shape, sidecars sorted by leaf. Thousands of units share few signatures, so each is judged once.
Signature = tuple[str, str, tuple[int, ...], tuple[Side, ...]]


class TensorGroups(msgspec.Struct, frozen=True):
    """Every tensor of a checkpoint, exactly once: in a quantized group, an orphan, a cache scale, dense or other.

    `quantized` maps a signature to the names of the primary tensors that have it. `orphans` are sidecars that belong
    to no quantized tensor, with their leaf. `dense` and `other` hold the names of the rest: floating-point values of
    16 bits or more, and integers, booleans and complex numbers.
    """

    quantized: Mapping[Signature, list[str]]
    orphans: tuple[tuple[str, Leaf], ...]
    cache_scales: tuple[str, ...]
    dense: tuple[str, ...]
    other: tuple[str, ...]


class _Growing:
    """A signature while its sidecars are found one by one. Equal ones are one object, told apart by identity alone."""

    __slots__ = ("geometry", "grown", "names", "sides", "suffix")

    def __init__(self, suffix: str, geometry: Geometry, sides: tuple[Side, ...]) -> None:
        self.suffix = suffix
        self.geometry = geometry
        self.sides = sides
        self.grown: dict[tuple[str, int], _Growing] = {}
        self.names: list[str] = []

    def with_side(self, leaf: str, geometry: Geometry) -> _Growing:
        key = (leaf, id(geometry))
        grown = self.grown.get(key)
        if grown is None:
            sides = (*self.sides, (leaf, geometry.dtype, geometry.shape))
            grown = self.grown[key] = _Growing(self.suffix, self.geometry, sides)
        return grown


class _Seeds(dict[int, _Growing]):
    """One signature without sidecars for each geometry, by its identity, for names that end in `suffix`."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def seed(self, geometry: Geometry) -> _Growing:
        found = self.get(id(geometry))
        if found is None:
            found = self[id(geometry)] = _Growing(self.suffix, geometry, ())
        return found


class _Grouping:
    """Collects the tensors of a checkpoint; `finish` gives the groups."""

    def __init__(self, tensors: Mapping[str, Geometry], leaf_names: LeafNames) -> None:
        self.tensors = tensors
        self.leaf_names = leaf_names
        self.primaries: dict[str, _Growing] = {}
        self.seeds: dict[str, _Seeds] = {}
        self.sidecars: dict[Leaf, list[str]] = {leaf: [] for leaf in leaf_names.leaves}
        self.dense: list[str] = []
        self.other: list[str] = []
        self.orphans: list[tuple[str, Leaf]] = []
        self.cache_scales: list[str] = []

    def seed(self, name: str, geometry: Geometry) -> _Growing:
        suffix = self.leaf_names.primary_suffix(name)
        if suffix not in self.seeds:
            self.seeds[suffix] = _Seeds(suffix)
        return self.seeds[suffix].seed(geometry)

    def sort(self) -> None:
        """Sort every tensor by its name and dtype into primaries, sidecars, dense and other."""
        primaries, dense, other, leaf_names = self.primaries, self.dense, self.other, self.leaf_names
        append_to = {leaf.suffix: names.append for leaf, names in self.sidecars.items()}
        weights = self.seeds[".weight"] = _Seeds(".weight")
        for name, geometry in self.tensors.items():
            # No leaf is called "weight", so that most names are settled without cutting out their last segment.
            if name.endswith(".weight"):
                if geometry.dtype in NARROW_FLOAT:
                    primaries[name] = weights.seed(geometry)
                    continue
            elif (leaf := leaf_names[name[name.rfind(".") + 1 :]]) is not None:
                append_to[leaf.suffix](name)
                continue
            elif geometry.dtype in NARROW_FLOAT:
                primaries[name] = self.seed(name, geometry)
                continue
            (dense if geometry.dtype in DENSE else other).append(name)
        for name in other:
            if leaf_names.payload_of(name.rpartition(".")[2], self.tensors[name].dtype) is not None:
                primaries[name] = self.seed(name, self.tensors[name])

    def attach(self, names: list[str], leaf: Leaf) -> None:
        """Add each sidecar with this leaf to its primary tensor.

        An 8-bit integer tensor becomes a primary one when a sidecar belongs to it: that is what makes it packed. A
        name that counts only beside a quantized tensor is an ordinary parameter elsewhere.
        """
        primaries, tensors, suffix = self.primaries, self.tensors, leaf.suffix
        cut = -len(suffix)
        beside = leaf.beside[0] if leaf.beside else ""
        for name in names:
            geometry = tensors[name]
            primary = name[:cut] + beside
            growing = primaries.get(primary)
            if growing is not None:
                primaries[primary] = growing.with_side(suffix, geometry)
                continue
            present = next((name[:cut] + each for each in leaf.beside if name[:cut] + each in tensors), "")
            if present in primaries:
                primaries[present] = primaries[present].with_side(suffix, geometry)
            elif present and tensors[present].dtype in PACKED:
                primaries[present] = self.seed(present, tensors[present]).with_side(suffix, geometry)
            elif not leaf.needs_quantized:
                self.orphans.append((name, leaf))
            elif geometry.dtype in NARROW_FLOAT:
                primaries[name] = self.seed(name, geometry)
            else:
                (self.dense if geometry.dtype in DENSE else self.other).append(name)

    def finish(self) -> TensorGroups:
        found: dict[int, _Growing] = {}
        for name, growing in self.primaries.items():
            growing.names.append(name)
            found[id(growing)] = growing
        quantized: dict[Signature, list[str]] = {}
        for each in found.values():
            signature = (each.suffix, each.geometry.dtype, each.geometry.shape, tuple(sorted(each.sides)))
            quantized.setdefault(signature, []).extend(each.names)
        other = tuple(name for name in self.other if name not in self.primaries)
        return TensorGroups(quantized, tuple(self.orphans), tuple(self.cache_scales), tuple(self.dense), other)


def group_tensors(tensors: Mapping[str, Geometry], leaf_names: LeafNames) -> TensorGroups:
    """Pair weights and sidecars by name alone. A sidecar may lie in another shard than its weight."""
    grouping = _Grouping(tensors, leaf_names)
    grouping.sort()
    for leaf, names in grouping.sidecars.items():
        if leaf.role == "cache-scale":
            grouping.cache_scales += names
        elif names:
            grouping.attach(names, leaf)
    return grouping.finish()

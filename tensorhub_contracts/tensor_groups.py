"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from tensorhub_contracts.contract import Leaf
from tensorhub_contracts.dtypes import BITS, DENSE, NARROW_FLOAT, PACKED
from tensorhub_contracts.leaf_names import LeafNames
from tensorhub_contracts.tensor_entry import TensorEntry

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


def group_tensors(tensors: Mapping[str, TensorEntry], leaf_names: LeafNames) -> TensorGroups:
    """Pair weights and sidecars by name alone. A sidecar may lie in another shard than its weight."""
    names_of_leaf: dict[Leaf, list[str]] = {leaf: [] for leaf in leaf_names.leaves}
    append_to = {suffix: names.append for suffix, names in ((leaf.suffix, names) for leaf, names in names_of_leaf.items())}
    narrow: list[str] = []
    dense: list[str] = []
    other: list[str] = []
    append_by_dtype = {dtype: (narrow if dtype in NARROW_FLOAT else dense if dtype in DENSE else other).append for dtype in BITS}
    for name, entry in tensors.items():
        # No leaf is called "weight", so that most names are settled without cutting out their last segment.
        leaf = None if name.endswith(".weight") else leaf_names[name[name.rfind(".") + 1 :]]
        if leaf is None:
            append_by_dtype[entry.dtype](name)
        else:
            append_to[leaf.suffix](name)
    primaries: dict[str, tuple[Side, ...]] = dict.fromkeys(narrow, ())
    for name in other:
        if leaf_names.payload_of(name.rpartition(".")[2], tensors[name].dtype) is not None:
            primaries[name] = ()
    orphans: list[tuple[str, Leaf]] = []
    cache_scales: list[str] = []
    for leaf, names in names_of_leaf.items():
        if leaf.role == "cache-scale":
            cache_scales += names
        elif names:
            for name in _attach(names, leaf, tensors, primaries):
                if not leaf.needs_quantized:
                    orphans.append((name, leaf))
                elif tensors[name].dtype in NARROW_FLOAT:
                    primaries[name] = ()
                else:
                    (dense if tensors[name].dtype in DENSE else other).append(name)
    return TensorGroups(
        quantized=_by_signature(primaries, tensors, leaf_names),
        orphans=tuple(orphans),
        cache_scales=tuple(cache_scales),
        dense=tuple(dense),
        other=tuple(name for name in other if name not in primaries),
    )


def _attach(names: list[str], leaf: Leaf, tensors: Mapping[str, TensorEntry], primaries: dict[str, tuple[Side, ...]]) -> list[str]:
    """Add each sidecar with this leaf to its primary tensor; return those that belong to no quantized tensor.

    An 8-bit integer tensor becomes a primary one when a sidecar belongs to it: that is what makes it packed.
    """
    left_over = []
    cut = -len(leaf.suffix)
    sides = _Sides(leaf.suffix)
    combined: dict[tuple[Side, ...], tuple[Side, ...]] = {}
    beside = leaf.beside[0] if leaf.beside else ""
    for name in names:
        entry = tensors[name]
        side = sides[entry.dtype, entry.shape]
        primary = name[:cut] + beside
        attached = primaries.get(primary)
        if attached is None and primary not in tensors:
            primary = next((name[:cut] + each for each in leaf.beside[1:] if name[:cut] + each in tensors), primary)
            attached = primaries.get(primary)
        if attached:
            both = attached + side
            primaries[primary] = combined.setdefault(both, both)
        elif attached is not None or (primary in tensors and tensors[primary].dtype in PACKED):
            primaries[primary] = side
        else:
            left_over.append(name)
    return left_over


class _Sides(dict[tuple[str, tuple[int, ...]], tuple[Side]]):
    """Makes one sidecar for each geometry, so that equal ones are the same object."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def __missing__(self, geometry: tuple[str, tuple[int, ...]]) -> tuple[Side]:
        self[geometry] = made = ((self.suffix, *geometry),)
        return made


def _by_signature(
    primaries: Mapping[str, tuple[Side, ...]], tensors: Mapping[str, TensorEntry], leaf_names: LeafNames
) -> dict[Signature, list[str]]:
    """Collect the names of equal signatures. Sidecars of equal geometry are one object, so identity tells most apart."""
    names_of: defaultdict[tuple[str, str, tuple[int, ...], int], list[str]] = defaultdict(list)
    for name, attached in primaries.items():
        entry = tensors[name]
        suffix = ".weight" if name.endswith(".weight") else leaf_names.primary_suffix(name)
        names_of[suffix, entry.dtype, entry.shape, id(attached)].append(name)
    quantized: dict[Signature, list[str]] = {}
    for (suffix, dtype, shape, _), names in names_of.items():
        signature = (suffix, dtype, shape, tuple(sorted(primaries[names[0]])))
        quantized.setdefault(signature, []).extend(names)
    return quantized

"""Groups the tensors of a checkpoint by name: each quantized tensor with its sidecars, across shards."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from tensorhub_contracts.contract import Leaf
from tensorhub_contracts.dtypes import DENSE, NARROW_FLOAT, PACKED
from tensorhub_contracts.leaf_names import LeafNames
from tensorhub_contracts.tensor_entry import TensorEntry

#: A sidecar of a signature: the leaf's suffix, dtype and shape.
Side = tuple[str, str, tuple[int, ...]]

#: What one quantized tensor looks like, without its name: what its name ends in (`.weight`, a payload's suffix or
#: nothing), dtype, shape, sidecars sorted by leaf. Thousands of units share few signatures, so each is judged once.
Signature = tuple[str, str, tuple[int, ...], tuple[Side, ...]]


@frozen
class TensorGroups:
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
    sides: list[tuple[str, Leaf, TensorEntry]] = []
    primaries: dict[str, tuple[Side, ...]] = {}
    dense: list[str] = []
    other: list[str] = []
    for name, entry in tensors.items():
        segment = name[name.rfind(".") + 1 :]
        leaf = leaf_names[segment]
        if leaf is not None:
            sides.append((name, leaf, entry))
            continue
        dtype = entry.dtype
        if dtype == "F8_E4M3" or dtype in NARROW_FLOAT:
            primaries[name] = ()
        elif dtype in DENSE:
            dense.append(name)
        elif leaf_names.payload_of(segment, dtype) is not None:
            primaries[name] = ()
        else:
            other.append(name)
    orphans, cache_scales = _attach(sides, tensors, primaries, dense, other)
    quantized: dict[Signature, list[str]] = {}
    primary_suffix = leaf_names.primary_suffix
    for name, attached in primaries.items():
        entry = tensors[name]
        if len(attached) > 1:
            attached = tuple(sorted(attached))
        suffix = ".weight" if name.endswith(".weight") else primary_suffix(name)
        signature = (suffix, entry.dtype, entry.shape, attached)
        if signature in quantized:
            quantized[signature].append(name)
        else:
            quantized[signature] = [name]
    if len(other) and any(name in primaries for name in other):
        other = [name for name in other if name not in primaries]
    return TensorGroups(quantized, tuple(orphans), tuple(cache_scales), tuple(dense), tuple(other))


def _attach(
    sides: list[tuple[str, Leaf, TensorEntry]],
    tensors: Mapping[str, TensorEntry],
    primaries: dict[str, tuple[Side, ...]],
    dense: list[str],
    other: list[str],
) -> tuple[list[tuple[str, Leaf]], list[str]]:
    """Add each sidecar to its primary tensor; return the orphans and the cache scales.

    A bare 8-bit integer tensor becomes a primary one when a sidecar belongs to it: that is what makes it packed. A
    name that only counts beside a quantized tensor is an ordinary parameter elsewhere.
    """
    orphans: list[tuple[str, Leaf]] = []
    cache_scales: list[str] = []
    for name, leaf, entry in sides:
        if leaf.role == "cache-scale":
            cache_scales.append(name)
            continue
        primary = _primary_of(name, leaf, tensors)
        if primary in primaries:
            primaries[primary] += ((leaf.suffix, entry.dtype, entry.shape),)
        elif primary and tensors[primary].dtype in PACKED:
            primaries[primary] = ((leaf.suffix, entry.dtype, entry.shape),)
        elif not leaf.needs_quantized:
            orphans.append((name, leaf))
        elif entry.dtype in DENSE:
            dense.append(name)
        elif entry.dtype in NARROW_FLOAT:
            primaries[name] = ()
        else:
            other.append(name)
    return orphans, cache_scales


def _primary_of(name: str, leaf: Leaf, tensors: Mapping[str, TensorEntry]) -> str:
    """Return the tensor that a sidecar belongs to by name, or an empty string."""
    stem = name[: -len(leaf.suffix)]
    for beside in leaf.beside:
        primary = stem + beside
        if primary in tensors:
            return primary
    return ""

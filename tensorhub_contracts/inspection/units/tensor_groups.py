"""The tensors of a checkpoint in groups: each quantized tensor with its sidecars, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import SidecarName


@attrs.frozen(slots=False, repr=False)
class Sidecar(Readable):
    """A sidecar of a unit: the suffix of its name that the registry knows, its dtype and its shape.

    One that lies beside the unit's module, and that numbered weights share, is called `{module}` and its suffix.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


@attrs.frozen(slots=False, repr=False, cache_hash=True)
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


@attrs.frozen(slots=False, repr=False)
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

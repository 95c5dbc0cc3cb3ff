"""What a tensor is whose name means something to a plugin: a plugin takes no name from a tree that is judged without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.registry.contract import SidecarName
from tensorhub_contracts.registry.sidecar_names import SidecarNames

#: A tensor's name, what its name means, and its geometry.
Held = tuple[str, SidecarName, Geometry]


def settle_owned(
    held: Iterable[Held],
    names: SidecarNames,
    is_there: Callable[[str], bool],
    is_quantized: Callable[[str, SidecarName], bool],
) -> Iterator[tuple[str, SidecarName | None, Geometry]]:
    """Yield each tensor with the sidecar that it is, or with None if it is an ordinary tensor.

    It is the plugin's sidecar if a quantized tensor is there that the plugin puts it beside, and the shipped names put it
    beside none that is there. Otherwise it is what it is without the plugin, as long as no other tensor is the plugin's:
    in a tree of the plugin's layout, a scale that lost its weight is missed.
    """
    left: list[tuple[Held, SidecarName | None]] = []
    attached = False
    for name, owned, geometry in held:
        shipped = names[name[name.rfind(".") + 1 :]]
        if shipped is not None and any(map(is_there, primaries(name, shipped))):
            yield name, shipped, geometry
        elif is_quantized(name, owned):
            attached = True
            yield name, owned, geometry
        else:
            left.append(((name, owned, geometry), shipped))
    for (name, owned, geometry), shipped in left:
        yield name, owned if attached else shipped, geometry


def primaries(name: str, sidecar: SidecarName) -> Iterator[str]:
    """Yield the names of the tensors that a sidecar may belong to."""
    stem = name.removesuffix(sidecar.suffix)
    return (stem + beside for beside in sidecar.beside)

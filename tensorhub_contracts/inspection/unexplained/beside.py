"""Which names lie beside a weight: in its module, below it, or, where it is a bare parameter, under its own name.

docs/checkpoints.md states the rule. A tensor there may belong to the weight, whatever it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry

# Patterns are compiled when they are first used, and kept by `re`: most checkpoints have no name to try.
_SCALE_WORDS = "scal|absmax|amax|dequant|factor|zero|scb"
_WORDS = "[a-z0-9]+"


def parameters(quantized: Iterable[tuple[UnitGeometry, Iterable[str]]]) -> dict[str, list[tuple[str, str]]]:
    """Return the weights that are no `x.weight`, by their module: each with what its last segment begins with, and its name.

    That is all of it for a bare parameter, and what stands before the suffix for a payload: `w1` for `x.w1` and for `x.w1_blocks`.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for geometry, names in quantized:
        if not geometry.suffix.startswith("."):
            for name in names:
                module, _, leaf = name.rpartition(".")
                found.setdefault(module, []).append((leaf.removesuffix(geometry.suffix), name))
    return found


def sharing_name(leaf: str, weights: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the parameters that a tensor of this name may belong to: `w1_s` to `w1`, `gate_up_scale` to `gate_up_proj`."""
    listed = list(weights)
    yield from (name for own, name in listed if leaf.startswith((own + "_", own + ":")))
    if not re.search(_SCALE_WORDS, leaf.lower()):
        return
    words = {word for word in re.findall(_WORDS, leaf.lower()) if not re.search(_SCALE_WORDS, word)}
    yield from (name for own, name in listed if words <= set(re.findall(_WORDS, own.lower())))


class Beside:
    """Says of any name whether it lies beside one of the weights."""

    def __init__(self, geometry_of: Mapping[str, UnitGeometry]) -> None:
        self._geometry_of = geometry_of
        self._modules = {module for name, geometry in geometry_of.items() for module in _modules_of(name, geometry)}
        self._parameters = parameters((geometry, (name,)) for name, geometry in geometry_of.items())

    def __contains__(self, name: str) -> bool:
        module, _, leaf = name.rpartition(".")
        if module in self._geometry_of or module in self._modules:
            return True
        return any(True for _ in sharing_name(leaf, self._parameters.get(module, ())))


def _modules_of(name: str, geometry: UnitGeometry) -> Iterator[str]:
    """Yield the module that has a weight, and the one that it shares with others; none for a parameter that may lie in it beside others."""
    module, _, leaf = name.rpartition(".")
    if geometry.suffix.startswith(".") or (not geometry.suffix and "weight" in leaf):
        yield module
    if "{number}" in geometry.suffix:
        yield shared_module(name, geometry)


def shared_module(name: str, geometry: UnitGeometry) -> str:
    """Return the module of a numbered weight that has what it shares: `table` of `table.shard_3.weight`."""
    before, _, after = geometry.suffix.partition("{number}")
    return name.removesuffix(after).rpartition(before)[0]

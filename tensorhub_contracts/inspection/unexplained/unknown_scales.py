"""Floating tensors beside a quantized weight that could be its scale and that no contract describes: by place and size, not by name.

That no scale lies under a known name does not prove that there is none: whatever else lies beside a weight is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.units.scale_shapes import describe_grid
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.registry.contract import Contract

#: What modules have beside a weight and add to what it computes, or normalize with.
_COMPANIONS: Final = ("bias", "running_mean", "running_var")

_SCALE_WORDS = re.compile(r"scal|absmax|amax|dequant|factor|zero|scb")
_WORDS = re.compile(r"[a-z0-9]+")


def unknown_scale_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield a violation for each tensor that could be the scale of a unit which is in the contract."""
    if not candidates.groups.quantized:
        return
    for name, weight in _pairs(candidates, contract):
        tensors, shard_of = candidates.checkpoint.tensors, candidates.checkpoint.shard_of
        geometry = tensors[name]
        words = describe_grid(tensors[weight].shape, geometry.shape)
        yield Violation(
            code="scale-name-unknown",
            object=name,
            expected=f"nothing beside {weight} but what {contract.handle} describes",
            found=f"{geometry.dtype} {write_shape(geometry.shape)}" + (f": {words}" if words else ""),
            shard=shard_of[name],
        )


def _pairs(candidates: Candidates, contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield each tensor that could be a scale, with the weight beside it."""
    groups = candidates.groups
    suffixes = {geometry.suffix for geometry in groups.quantized if geometry.suffix.startswith(".")}
    ordinary = (*_COMPANIONS, *(() if suffixes - {".weight"} else (".weight",)))  # no weight lies beside itself
    bare = _bare_units(candidates, contract)
    named = [name for names in bare.values() for name in names] if contract.whole_tree else []
    in_contract = _InContract(candidates, contract)
    for name in (*groups.unquantized, *named):
        if name.endswith(ordinary):
            continue
        module, _, leaf = name.rpartition(".")
        beside = [module, *(module + suffix for suffix in suffixes)]
        if name in groups.unquantized:
            beside += _sharing_name(leaf, bare.get(module, ()))
        weight = next((each for each in beside if each != name and each in in_contract), None)
        if weight is not None and _fits(candidates.checkpoint.tensors[name], candidates.checkpoint.tensors[weight]):
            yield name, weight


class _InContract:
    """The weights of the units that are in a contract. Most names that are looked for are no weights at all."""

    def __init__(self, candidates: Candidates, contract: Contract) -> None:
        self._groups, self._shard_of = candidates.groups, candidates.checkpoint.shard_of
        self._judged = candidates.judged(contract.handle)

    def __contains__(self, name: str) -> bool:
        if name not in self._shard_of or name in self._groups.unquantized or name in self._groups.other:
            return False
        geometry = self._groups.geometry_of.get(name)
        return geometry is not None and isinstance(self._judged.get(geometry), UnitLayout)


def _bare_units(candidates: Candidates, contract: Contract) -> dict[str, list[str]]:
    """Return the weights that are bare parameters, by their module."""
    found: dict[str, list[str]] = {}
    judged = candidates.judged(contract.handle)
    for geometry, names in candidates.groups.quantized.items():
        if not geometry.suffix and isinstance(judged.get(geometry), UnitLayout):
            for name in names:
                found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _sharing_name(leaf: str, weights: Iterable[str]) -> Iterator[str]:
    """Yield the bare parameters whose scale a tensor of this name could be: `w1_s` that of `w1`, `gate_up_scale` that of `gate_up_proj`."""
    yield from (weight for weight in weights if leaf.startswith(((own := weight.rpartition(".")[2]) + "_", own + ":")))
    if not _SCALE_WORDS.search(leaf.lower()):
        return
    words = {word for word in _WORDS.findall(leaf.lower()) if not _SCALE_WORDS.search(word)}
    for weight in weights:
        if words <= set(_WORDS.findall(weight.rpartition(".")[2].lower())):
            yield weight


def _fits(scale: Geometry, weight: Geometry) -> bool:
    """Whether a tensor has no more elements than the weight: one for all, for each row, for each block."""
    return math.prod(scale.shape) <= max(1, math.prod(weight.shape))

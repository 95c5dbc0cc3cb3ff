"""Floating tensors beside a quantized weight that could be its scale and that no contract describes: by place and size, not by name.

That no scale lies under a known name does not prove that there is none: whatever else lies beside a weight is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.unexplained.beside import parameters, sharing_name
from tensorhub_contracts.inspection.units.scale_shapes import describe_grid
from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.registry.contract import Contract

#: What modules have beside a weight and add to what it computes, or normalize with.
_COMPANIONS: Final = ("bias", "running_mean", "running_var")


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
    suffixes = {_own_suffix(geometry) for geometry in groups.quantized if geometry.suffix.startswith(".")}
    shared = {sidecar.rpartition(".")[0]: next(iter(weights.values())) for sidecar, weights in groups.shared.items()}
    ordinary = (*_COMPANIONS, *(() if suffixes - {".weight"} else (".weight",)))  # no weight lies beside itself
    units = _parameters(candidates, contract)
    named = [name for listed in units.values() for _, name in listed] if contract.whole_tree else []
    in_contract = _InContract(candidates, contract)
    for name in (*groups.unquantized, *named):
        if name.endswith(ordinary):
            continue
        module, _, leaf = name.rpartition(".")
        beside = [module, *(module + suffix for suffix in suffixes), *filter(None, (shared.get(module),))]
        sharing = sharing_name(leaf, units.get(module, ()))
        # One as large as the other is no scale of it but another weight, such as the other direction of a recurrent layer.
        beside += sharing if name in groups.unquantized else _larger(candidates, name, sharing)
        weight = next((each for each in beside if each != name and each in in_contract), None)
        if weight is not None and _fits(candidates.checkpoint.tensors[name], candidates.checkpoint.tensors[weight]):
            yield name, weight


def _own_suffix(geometry: UnitGeometry) -> str:
    """Return what follows the module that a weight has to itself: `.weight` of `table.shard_3.weight` too."""
    return geometry.suffix.partition("{number}")[2] or geometry.suffix


def _larger(candidates: Candidates, name: str, others: Iterable[str]) -> Iterator[str]:
    tensors = candidates.checkpoint.tensors
    return (each for each in others if _size(tensors[each]) > _size(tensors[name]))


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


def _parameters(candidates: Candidates, contract: Contract) -> dict[str, list[tuple[str, str]]]:
    """Return the weights in the contract that are no `x.weight`, by their module."""
    judged = candidates.judged(contract.handle)
    return parameters((each, names) for each, names in candidates.groups.quantized.items() if isinstance(judged.get(each), UnitLayout))


def _fits(scale: Geometry, weight: Geometry) -> bool:
    """Whether a tensor has no more elements than the weight: one for all, for each row, for each block."""
    return _size(scale) <= max(1, _size(weight))


def _size(geometry: Geometry) -> int:
    return math.prod(geometry.shape)

"""Damages one unit of a sound sample in ways that headers show; a contract must refuse each, and name the unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tensorhub_contracts.checkpoints.geometry import BITS
from tensorhub_contracts.registry.contract import Contract, Form
from tensorhub_contracts.registry.registry import Registry
from tensorhub_contracts.testing.sample_units import SampleUnit, StoredTensor

#: The tensors of a damaged unit by name, or None if the fault cannot be made in this contract.
Damaged = Mapping[str, StoredTensor] | None


def _form(unit: SampleUnit, contract: Contract) -> Form:
    return next(form for form in contract.form if form.name == unit.form)


def _zeros(dtype: str, shape: tuple[int, ...]) -> StoredTensor:
    return StoredTensor(dtype, shape, bytes(-(-math.prod(shape) * BITS[dtype] // 8)))


def _with(unit: SampleUnit, role: str, tensor: StoredTensor | None, name: str = "") -> dict[str, StoredTensor]:
    """Return the tensors of a unit with one replaced, renamed or, by None, taken away."""
    tensors = {unit.names[each]: stored for each, stored in unit.tensors.items() if each != role}
    return tensors if tensor is None else {**tensors, name or unit.names[role]: tensor}


def missing_scale(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The scale is not there."""
    return _with(unit, "scale", None) if "scale" in unit.tensors else None


def wrong_sidecar(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The scale is named as another layout names it."""
    if "scale" not in unit.tensors:
        return None
    form = _form(unit, contract)
    own = {tensor.suffix for tensor in form.tensors.values()}
    stem = unit.names["weight"].removesuffix(form.primary.suffix)
    for sidecar in registry.sidecars:
        for beside in sidecar.beside:
            if sidecar.role == "weight-scale" and form.primary.suffix.endswith(beside):
                suffix = form.primary.suffix.removesuffix(beside) + sidecar.suffix
                if suffix not in own and suffix:
                    return _with(unit, "scale", unit.tensors["scale"], stem + suffix)
    return None


def wrong_rank(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The scale has two dimensions more than any shape that it may have."""
    if "scale" not in unit.tensors:
        return None
    scale = unit.tensors["scale"]
    ranks = {len(shape) for shape in _form(unit, contract).tensors["scale"].shapes}
    return _with(unit, "scale", _zeros(scale.dtype, (2, 3, *scale.shape) if len(scale.shape) + 2 not in ranks else (2, 3, 5, *scale.shape)))


def wrong_grid(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The scale has one element too many along its first dimension."""
    scale = unit.tensors.get("scale")
    if scale is None or not scale.shape or _is_free(unit, contract):
        return None
    return _with(unit, "scale", _zeros(scale.dtype, (scale.shape[0] + 1, *scale.shape[1:])))


def wrong_scale_dtype(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The scale has a dtype that the contract does not admit."""
    scale = unit.tensors.get("scale")
    if scale is None:
        return None
    admitted = _form(unit, contract).tensors["scale"].dtypes
    return _with(unit, "scale", _zeros(next(dtype for dtype in ("F64", "I32") if dtype not in admitted), scale.shape))


def wrong_weight_dtype(unit: SampleUnit, contract: Contract, registry: Registry) -> Damaged:
    """The weight has another dtype of one byte."""
    weight = unit.tensors["weight"]
    return _with(unit, "weight", _zeros("F8_E5M2", weight.shape)) if BITS[weight.dtype] == 8 else None


def _is_free(unit: SampleUnit, contract: Contract) -> bool:
    """Whether the first dimension of the scale is one that the weight does not bind."""
    first = _form(unit, contract).tensors["scale"].patterns[0][0]
    return bool(first.symbol) and first.symbol not in unit.symbols


#: Every fault, by a name that a test report can show.
HEADER_FAULTS: Final[dict[str, Callable[[SampleUnit, Contract, Registry], Damaged]]] = {
    "missing scale": missing_scale,
    "wrong sidecar": wrong_sidecar,
    "wrong rank": wrong_rank,
    "wrong grid": wrong_grid,
    "wrong scale dtype": wrong_scale_dtype,
    "wrong weight dtype": wrong_weight_dtype,
}

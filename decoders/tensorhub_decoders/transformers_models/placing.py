"""Puts resident units into a model, where its loader put their placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from tensorhub_contracts import Refusal, Violation
from tensorhub_decoders.resident.experts import ResidentExperts, SeparateExperts, put_experts
from tensorhub_decoders.resident.linear import ResidentLinear, ResidentModule
from tensorhub_decoders.resident.stored_weight import StoredWeight
from tensorhub_decoders.transformers_models.placeholders import REMEDY, PlaceholderTensor


def placeholders(weights: Mapping[str, Any], dtype: torch.dtype, refused: list[Violation]) -> dict[str, torch.Tensor]:
    """Return weights for a model's loader: ordinary tensors in the CPU's memory, and a placeholder for each resident unit.

    Placeholders have the shape of their unit, the dtype `dtype`, and no memory. The list `refused` gets a violation for each
    operation of the loader on a placeholder that cannot be carried out with units.
    """
    return {
        name: PlaceholderTensor(weight.shape, dtype, ((name,),), refused) if isinstance(weight, ResidentModule) else weight.cpu()
        for name, weight in weights.items()
    }


def put_resident_units(model: torch.nn.Module, units: Mapping[str, Any]) -> None:
    """Replace every placeholder in a model by the units that it is made of.

    A projection becomes a `ResidentLinear` with the model's bias, a stacked parameter of experts a `ResidentExperts`. Raises
    `Refusal` (`resident-placement`) with every unit that lies in a parameter of another kind, and changes nothing then.
    """
    tensors = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    found = [(name, tensor) for name, tensor in tensors if isinstance(tensor, PlaceholderTensor)]
    refused: list[Violation] = []
    for name, place in found:
        holder = model.get_submodule(name.rpartition(".")[0])
        if not _is_projection(holder, name, place) and not _is_stack(place, units):
            refused += [_refused(unit, name, holder) for matrix in place.matrices for unit in matrix]
    if refused:
        raise Refusal(refused)
    for name, place in found:
        holder_name, _, own_name = name.rpartition(".")
        holder = model.get_submodule(holder_name)
        if place.dim() == 2:
            unit = units[place.matrices[0][0]]
            unit.set_bias(holder.bias)
            model.set_submodule(holder_name, unit)
        else:
            put_experts(holder, own_name, _experts(place, holder_name.rpartition(".")[2], units))


def _is_projection(holder: torch.nn.Module, name: str, place: PlaceholderTensor) -> bool:
    """Whether a placeholder is the weight of a module that multiplies as `torch.nn.Linear` does, whole and of one unit."""
    multiplies = isinstance(holder, torch.nn.Linear) and type(holder).forward is torch.nn.Linear.forward
    return multiplies and name.endswith(".weight") and [len(matrix) for matrix in place.matrices] == [1]


def _is_stack(place: PlaceholderTensor, units: Mapping[str, Any]) -> bool:
    """Whether a placeholder is a stack of experts, each of whole units, or one stacked unit."""
    if place.dim() != 3:
        return False
    stored = [units[unit] for matrix in place.matrices for unit in matrix]
    return len(stored) == 1 or (len(place.matrices) == place.shape[0] and all(isinstance(unit, ResidentLinear) for unit in stored))


def _refused(unit: str, name: str, holder: torch.nn.Module) -> Violation:
    expected = "the weight of a linear projection, or a stack of experts"
    return Violation(code="resident-placement", object=unit, expected=expected, found=f"{name} of a {type(holder).__name__}", remedy=REMEDY)


def _experts(place: PlaceholderTensor, holder: str, units: Mapping[str, Any]) -> ResidentExperts:
    """Return the experts of a placeholder; `holder` is the name of the module that they lie in."""
    first = units[place.matrices[0][0]]
    if isinstance(first, ResidentExperts):
        return first
    stored: Sequence[Sequence[StoredWeight]] = [[units[unit].stored for unit in matrix] for matrix in place.matrices]
    names = [
        [_names_below(holder, unit, kept.scale_name) for unit, kept in zip(matrix, row, strict=True)]
        for matrix, row in zip(place.matrices, stored, strict=True)
    ]
    return SeparateExperts(stored, names, activation_bits=first.activation_bits)


def _names_below(holder: str, unit: str, scale_name: str) -> tuple[str, str]:
    """Return the checkpoint's names of weight and scale below a module: the part after that module's name."""
    below = unit.rpartition(f"{holder}.")[2]
    return below, below.removesuffix("weight") + scale_name

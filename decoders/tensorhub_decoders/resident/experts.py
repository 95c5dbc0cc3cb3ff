"""Experts whose weights stay the bytes of the checkpoint, in the place of a model's stacked parameter `[experts, out, in]`."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tensorhub_decoders.resident.linear import ResidentModule
from tensorhub_decoders.resident.multiply import ResidentOperand
from tensorhub_decoders.resident.stored_weight import StoredWeight


class ResidentExperts(ResidentModule):
    """`experts[i]` is the matrix of one expert, which `torch.nn.functional.linear` multiplies with, and nothing else does.

    What a checkpoint calls weights and scales is said below the module that holds the stack, whose own name it does not have.
    """

    def __init__(self, shape: torch.Size, activation_bits: int) -> None:
        super().__init__(activation_bits)
        self._shape = shape
        self.eval()

    @property
    def shape(self) -> torch.Size:
        """[experts, out, in]."""
        return self._shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, expert: int | torch.Tensor) -> ResidentOperand:
        """Return the matrix of one expert; raises IndexError beyond the last, and TypeError for what is not one whole number."""
        return ResidentOperand(self.units_of(operator.index(expert)), self.activation_bits)

    def units_of(self, expert: int) -> Sequence[StoredWeight]:
        """Return the units of one expert, which lie one after the other along `out`."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{tuple(self.shape)}, fp8"

    def state_names(self, prefix: str) -> Iterator[tuple[str, str, StoredWeight]]:
        holder = "".join(prefix.removesuffix(".").rpartition(".")[:2])
        for weight, scale, unit in self.stored_weights():
            yield holder + weight, holder + scale, unit


def put_experts(holder: torch.nn.Module, name: str, experts: ResidentExperts) -> None:
    """Put experts in the place of a module's parameter; the module hands on what a state dict has for them."""
    if not any(isinstance(child, ResidentExperts) for child in holder.children()):
        holder.register_load_state_dict_pre_hook(_hand_on)  # type: ignore[no-untyped-call]  # torch does not annotate it
    delattr(holder, name)
    setattr(holder, name, experts)


def _hand_on(holder: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *rest: object) -> None:
    """Give what lies below a module to the experts whose it is: torch shows a module only what begins with its own name."""
    for name, child in holder.named_children():
        if isinstance(child, ResidentExperts):
            for own_name in (each for weight, scale, _ in child.stored_weights() for each in (weight, scale)):
                if prefix + own_name in state_dict:
                    state_dict[f"{prefix}{name}.{own_name}"] = state_dict.pop(prefix + own_name)


class SeparateExperts(ResidentExperts):
    """Experts that a checkpoint stores one by one, and a fused projection of theirs in several units.

    `experts` holds the units of each expert, `names` the weight's and the scale's name of each. Raises ValueError unless all
    experts have one shape.
    """

    def __init__(
        self, experts: Sequence[Sequence[StoredWeight]], names: Sequence[Sequence[tuple[str, str]]], *, activation_bits: int
    ) -> None:
        shapes = {ResidentOperand(units, activation_bits).shape for units in experts}
        if len(shapes) != 1 or [len(units) for units in experts] != [len(each) for each in names]:
            raise ValueError(f"experts of one shape, and a name for every unit, not {sorted(shapes)}")
        super().__init__(torch.Size((len(experts), *shapes.pop())), activation_bits)
        self.experts = tuple(tuple(units) for units in experts)
        self.names = tuple(tuple(each) for each in names)

    def units_of(self, expert: int) -> Sequence[StoredWeight]:
        """Return the units of one expert."""
        return self.experts[expert]

    def stored_weights(self) -> Iterator[tuple[str, str, StoredWeight]]:
        """Yield every unit, expert by expert."""
        for units, names in zip(self.experts, self.names, strict=True):
            for unit, (weight, scale) in zip(units, names, strict=True):
                yield weight, scale, unit

    def replace_stored(self, units: Sequence[StoredWeight]) -> None:
        """Take other units in place of the present ones."""
        left = iter(units)
        self.experts = tuple(tuple(next(left) for _ in expert) for expert in self.experts)


class StackedExperts(ResidentExperts):
    """Experts that a checkpoint stores as one unit of three dimensions; `names` are those of the weight and the scale."""

    def __init__(self, stored: StoredWeight, names: tuple[str, str], *, activation_bits: int) -> None:
        super().__init__(stored.weight.shape, activation_bits)
        if stored.weight.dim() != 3:
            raise ValueError(f"weight: three dimensions, not {tuple(stored.weight.shape)}")
        self.stored = stored
        self.names = names

    def units_of(self, expert: int) -> Sequence[StoredWeight]:
        """Return the one unit of an expert."""
        return (self.stored.matrix(expert),)

    def stored_weights(self) -> Iterator[tuple[str, str, StoredWeight]]:
        """Yield the stack."""
        yield (*self.names, self.stored)

    def replace_stored(self, units: Sequence[StoredWeight]) -> None:
        """Take another stack."""
        (self.stored,) = units

"""Modules whose weights stay the bytes of the checkpoint: a linear projection, and a stack of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import torch

from tensorhub_decoders.resident.multiply import ACTIVATIONS, ResidentOperand, project
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight, RowStoredWeight, StoredWeight, require_values


class ResidentModule(torch.nn.Module):
    """Holds stored weights where no cast reaches them: a move to another device moves them, and the state dict has them as stored.

    The state dict has the names and dtypes of the checkpoint. A state of other dtypes or shapes is an error, and never cast.
    """

    def __init__(self, activation_bits: int) -> None:
        super().__init__()
        if activation_bits not in ACTIVATIONS:
            raise ValueError(f"activation_bits: {', '.join(map(str, ACTIVATIONS))}, not {activation_bits!r}")
        self.activation_bits = activation_bits

    def stored_weights(self) -> Iterator[tuple[str, str, StoredWeight]]:
        """Yield the unit's names of weight and of scale, relative to the module, and the unit."""
        raise NotImplementedError

    def replace_stored(self, units: Sequence[StoredWeight]) -> None:
        """Take other units in place of the present ones, in the order of `stored_weights`."""
        raise NotImplementedError

    @property
    def shape(self) -> torch.Size:
        """That of the matrix, or of the stack of matrices."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """What codes and scales take in memory."""
        return sum(unit.nbytes for _, _, unit in self.stored_weights())

    def state_names(self, prefix: str) -> Iterator[tuple[str, str, StoredWeight]]:
        """Yield the names that a state dict has for weights and scales, and the units."""
        for weight, scale, unit in self.stored_weights():
            yield prefix + weight, prefix + scale, unit

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Apply a cast or a move to parameters, and of a move also to weights and scales."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch does not annotate it
        units = [unit for _, _, unit in self.stored_weights()]
        # Bytes show where a function moves tensors to, and no cast to a floating-point dtype changes them.
        device = fn(torch.empty(0, dtype=torch.uint8, device=units[0].weight.device)).device
        self.replace_stored([unit.to(device) for unit in units])
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for weight, scale, unit in self.state_names(prefix):
            destination[weight] = unit.weight
            destination[scale] = unit.scale

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take weights and scales only as they must be: another dtype or shape is an error, and nothing is cast."""
        errors: list[str] = rest[-1]
        missing: list[str] = rest[-3]
        units: list[StoredWeight] = []
        for (weight, scale, unit), names in zip(self.stored_weights(), self.state_names(prefix), strict=True):
            found = []
            for own_name, name, held in ((weight, names[0], unit.weight), (scale, names[1], unit.scale)):
                given = state_dict.pop(prefix + own_name, None)
                if given is None:
                    missing.append(name)
                elif given.dtype != held.dtype or given.shape != held.shape:
                    wanted = f"{held.dtype} {tuple(held.shape)}"
                    errors.append(f"{name}: expected {wanted}, found {given.dtype} {tuple(given.shape)}")
                else:
                    found.append(given.detach().clone())
            if len(found) == 2:
                require_values(*found)
                unit = unit.with_tensors(*found)
            units.append(unit)
        self.replace_stored(units)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class ResidentLinear(ResidentModule):
    """`y = x W^T + b` with W in FP8 and its scale beside it, as they are stored.

    `weight` is float8_e4m3fn `[out, in]`, `bias` `[out]` or None. `activation_bits` is that of the lane: 16 takes BF16 or F16
    and upcasts weights to it, 32 takes F32. No cast of the module touches weight or scale (`.to(dtype)`, `.half()`,
    `.bfloat16()`); a move to another device moves both. The state dict has the names and dtypes of the checkpoint.
    """

    #: What holds the codes and the scale of the unit.
    stored_type: ClassVar[type[StoredWeight]]

    def __init__(self, stored: StoredWeight, bias: torch.Tensor | None, activation_bits: int) -> None:
        super().__init__(activation_bits)
        if stored.weight.dim() != 2:
            raise ValueError(f"weight: two dimensions, not {tuple(stored.weight.shape)}")
        self.out_features, self.in_features = stored.weight.shape
        self.stored = stored
        self.bias: torch.nn.Parameter | None
        self.set_bias(bias)
        self.eval()

    @classmethod
    def from_stored(cls, stored: StoredWeight, activation_bits: int) -> Self:
        """Return a module without a bias for a unit whose values are judged."""
        module = cls.__new__(cls)
        ResidentLinear.__init__(module, stored, None, activation_bits)
        return module

    def set_bias(self, bias: torch.Tensor | None) -> None:
        """Take a bias `[out]`, or none."""
        self.register_parameter("bias", None if bias is None else torch.nn.Parameter(bias, requires_grad=False))

    @property
    def shape(self) -> torch.Size:
        """[out, in]."""
        return self.stored.weight.shape

    @property
    def weight(self) -> ResidentOperand:
        """What a model's own code multiplies with, and can do nothing else with: codes that are read as numbers lack their scale."""
        return ResidentOperand((self.stored,), self.activation_bits)

    @property
    def codes(self) -> torch.Tensor:
        """The stored codes, float8_e4m3fn."""
        return self.stored.weight

    @property
    def scale(self) -> torch.Tensor:
        """The stored scale."""
        return self.stored.scale

    def stored_weights(self) -> Iterator[tuple[str, str, StoredWeight]]:
        """Yield the one unit."""
        yield "weight", self.stored.scale_name, self.stored

    def replace_stored(self, units: Sequence[StoredWeight]) -> None:
        """Take another unit."""
        (self.stored,) = units

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x W^T + b` in the dtype of `x`, `[..., in]`; raises ValueError for a dtype that the lane does not have."""
        return project(x, (self.stored,), self.bias, self.activation_bits)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, fp8"


class BlockFp8Linear(ResidentLinear):
    """One scale for each 128 x 128 block, counted from `first_row` of the unit.

    A slice of a unit's rows comes with the unit's whole scale grid and says with `first_row` where it begins.
    """

    stored_type = BlockStoredWeight

    def __init__(
        self,
        weight: torch.Tensor,
        scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        activation_bits: int,
        first_row: int | None = None,
    ) -> None:
        stored = BlockStoredWeight(weight, scale, first_row)
        require_values(weight, scale)
        super().__init__(stored, bias, activation_bits)


class RowFp8Linear(ResidentLinear):
    """One scale for each row."""

    stored_type = RowStoredWeight

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None, *, activation_bits: int) -> None:
        stored = RowStoredWeight(weight, scale)
        require_values(weight, scale)
        super().__init__(stored, bias, activation_bits)

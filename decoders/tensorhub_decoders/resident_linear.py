"""Linear modules whose weights stay the bytes of the checkpoint: upcast strip by strip inside the projection, on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import torch
from torch.nn import functional

from tensorhub_decoders.upcast_strips import BLOCK, STRIP_ELEMENTS, require_grid, upcast_block_scaled, upcast_row_scaled

#: The dtypes of activations, by the bits that a lane's name gives them.
ACTIVATIONS = {16: (torch.bfloat16, torch.float16), 32: (torch.float32,)}


class ResidentLinear(torch.nn.Module):
    """`y = x W^T + b` with W in FP8 and its scale beside it, as they are stored.

    `weight` is float8_e4m3fn `[out, in]`, `bias` `[out]` or None. `activation_bits` is that of the lane: 16 takes BF16 or F16
    and upcasts weights to it, 32 takes F32. No cast of the module touches weight or scale (`.to(dtype)`, `.half()`,
    `.bfloat16()`); a move to another device moves both. The state dict has the names and dtypes of the checkpoint.
    """

    #: What follows `weight` in the name of the scale.
    scale_name: ClassVar[str]

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None, *, activation_bits: int) -> None:
        super().__init__()
        if weight.dtype is not torch.float8_e4m3fn or weight.dim() != 2:
            raise ValueError(f"weight: float8_e4m3fn of two dimensions, not {weight.dtype} {tuple(weight.shape)}")
        if activation_bits not in ACTIVATIONS:
            raise ValueError(f"activation_bits: 16 or 32, not {activation_bits!r}")
        self.out_features, self.in_features = weight.shape
        self.activation_bits = activation_bits
        require_values(weight, scale)
        self.stored = _Stored(weight, scale)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
        self.eval()

    @property
    def weight(self) -> torch.Tensor:
        """The stored codes."""
        return self.stored.weight

    @property
    def scale(self) -> torch.Tensor:
        """The stored scale."""
        return self.stored.scale

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> torch.Tensor:
        """Write rows of the weight to `out`, as the reference dequant means them."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x W^T + b` in the dtype of `x`, `[..., in]`; raises ValueError for a dtype that the lane does not have.

        Each strip of rows is multiplied as `torch.nn.functional.linear` multiplies: an output element is one sum over
        all of `in`, in the order of that function for as many rows as a strip has.
        """
        if x.dtype not in ACTIVATIONS[self.activation_bits]:
            raise ValueError(f"activations of {self.activation_bits} bits are asked for, not {x.dtype}")
        flat = x.reshape(-1, self.in_features)
        y = torch.empty(flat.shape[0], self.out_features, dtype=x.dtype)
        for begin, end in row_strips(self.out_features, self.in_features):
            rows = self.upcast(begin, end, _scratch.rows(end - begin, self.in_features, x.dtype))
            y[:, begin:end] = functional.linear(flat, rows, None if self.bias is None else self.bias[begin:end].to(x.dtype))
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, fp8"

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Apply a cast or a move to the bias, and of a move also to weight and scale."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch does not annotate it
        # Bytes show where a function moves tensors to, and no cast to a floating-point dtype changes them.
        device = fn(torch.empty(0, dtype=torch.uint8, device=self.weight.device)).device
        self.stored = _Stored(self.weight.to(device), self.scale.to(device))
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight
        destination[f"{prefix}{self.scale_name}"] = self.scale

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take weight and scale only as they must be: another dtype or shape is an error, and nothing is cast."""
        errors: list[str] = rest[-1]
        missing: list[str] = rest[-3]
        found = {}
        for name, held in (("weight", self.weight), (self.scale_name, self.scale)):
            given = state_dict.pop(f"{prefix}{name}", None)
            if given is None:
                missing.append(f"{prefix}{name}")
            elif given.dtype != held.dtype or given.shape != held.shape:
                wanted = f"{held.dtype} {tuple(held.shape)}"
                errors.append(f"{prefix}{name}: expected {wanted}, found {given.dtype} {tuple(given.shape)}")
            else:
                found[name] = given
        if len(found) == 2:
            weight, scale = (each.detach().clone() for each in found.values())
            require_values(weight, scale)
            self.stored = _Stored(weight, scale)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class BlockFp8Linear(ResidentLinear):
    """`hf.fp8-blockwise@1`: one scale for each 128 x 128 block, counted from `first_row` of the unit.

    A slice of a unit's rows comes with the unit's whole scale grid and says with `first_row` where it begins.
    """

    scale_name = "weight_scale_inv"

    def __init__(
        self,
        weight: torch.Tensor,
        scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        activation_bits: int,
        first_row: int | None = None,
    ) -> None:
        super().__init__(weight, scale, bias, activation_bits=activation_bits)
        self.first_row = first_row
        require_grid(weight, scale, first_row)

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> torch.Tensor:
        """Write rows of the weight to `out` (`hf.fp8_blockwise.dequant@1`)."""
        return upcast_block_scaled(self.weight[begin:end], self.scale, out, first_row=(self.first_row or 0) + begin)


class RowFp8Linear(ResidentLinear):
    """`cozy.fp8-rowwise@1`: one scale for each row."""

    scale_name = "weight_scale"

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None, *, activation_bits: int) -> None:
        super().__init__(weight, scale, bias, activation_bits=activation_bits)
        if scale.shape != weight.shape[:1]:
            raise ValueError(f"scale {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected {tuple(weight.shape[:1])}")

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> torch.Tensor:
        """Write rows of the weight to `out` (`cozy.fp8_rowwise.dequant@1`)."""
        return upcast_row_scaled(self.weight[begin:end], self.scale[begin:end], out)


def row_strips(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the rows that are upcast and multiplied at a time: whole block rows, as many as make a strip, and at least one.

    How a sum is ordered depends on how many rows are multiplied at once: a weight of one strip is multiplied as a dense one is.
    """
    height = max(1, STRIP_ELEMENTS // max(1, columns * BLOCK)) * BLOCK
    yield from ((begin, min(begin + height, rows)) for begin in range(0, rows, height))


def require_values(weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Raise ValueError for NaN codes and for scales that are not finite or negative: a resident lane computes with none."""
    codes = int(((weight.view(torch.uint8) & 0x7F) == 0x7F).sum())
    wide = scale.to(torch.float32)
    scales = int((~torch.isfinite(wide) | (wide < 0)).sum())
    if codes or scales:
        raise ValueError(f"{codes:,} NaN codes, {scales:,} scales that are negative or not finite")


class _Stored:
    """Weight and scale where no cast of a module reaches them: not parameters, not buffers, and copied with the module."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        self.weight = weight
        self.scale = scale


class _Scratch(threading.local):
    """Memory of each thread for one strip of upcast rows."""

    def __init__(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def rows(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Return room for so many rows."""
        size = rows * columns * dtype.itemsize
        if self.bytes.numel() < size:
            self.bytes = torch.empty(max(size, STRIP_ELEMENTS * dtype.itemsize), dtype=torch.uint8)
        return self.bytes[:size].view(dtype).view(rows, columns)


_scratch = _Scratch()

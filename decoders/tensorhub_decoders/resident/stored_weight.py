"""A quantized weight that stays the bytes of the checkpoint: its codes and its scale, and what rows of it mean."""

from __future__ import annotations

from typing import ClassVar, Self

import torch

from tensorhub_decoders.exact_torch import exact_torch
from tensorhub_decoders.upcast.cutting import BLOCK
from tensorhub_decoders.upcast.strips import (
    holds_nan,
    require_grid,
    row_scale,
    upcast_block_scaled,
    upcast_mapped_blocks,
    upcast_row_scaled,
)


class StoredWeight:
    """The codes of one unit, float8_e4m3fn `[out, in]` or stacked `[experts, out, in]`, and their scale, as they are stored.

    Raises ValueError for other dtypes and shapes. Values are judged by `require_values`, once, where they come from.
    """

    #: What follows the name of a weight, in place of its own `weight`, in the name of the scale.
    scale_name: ClassVar[str]

    #: What the kernels call the way in which scales cover the weight: "block" or "row".
    grid: ClassVar[str]

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        if weight.dtype is not torch.float8_e4m3fn or weight.dim() not in (2, 3):
            raise ValueError(f"weight: float8_e4m3fn of two dimensions, or three for a stack, not {weight.dtype} {tuple(weight.shape)}")
        self.weight = weight
        self.scale = scale
        self._kernel_scale: tuple[torch.Tensor, torch.Tensor | None] | None = None

    @property
    def nbytes(self) -> int:
        """What codes and scale take in memory, and the scale's copies for kernels if there are any."""
        copies = () if self._kernel_scale is None else self._kernel_scale
        held = {each.data_ptr(): each.nbytes for each in (self.scale, *copies) if each is not None}
        return int(self.weight.nbytes + sum(held.values()))

    def with_tensors(self, weight: torch.Tensor, scale: torch.Tensor) -> Self:
        """Return the same unit with other tensors, of the same shapes and dtypes: on another device, or of another checkpoint."""
        return type(self)(weight, scale)

    def to(self, device: torch.device) -> Self:
        """Return the unit on a device: itself if it is there."""
        if self.weight.device == device and self.scale.device == device:
            return self
        moved = self.with_tensors(self.weight.to(device), self.scale.to(device))
        if device.type == "cuda":
            moved._kernel_scale = moved.kernel_scale()
        return moved

    def kernel_scale(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the scale as kernels take it: F32, which holds each stored scale exactly, and the grid row of each row of codes."""
        return self._kernel_scale or (self.scale.to(torch.float32).contiguous(), self._scale_rows())

    def _scale_rows(self) -> torch.Tensor | None:
        """Return the row of the scale grid for each row of codes, int32, or None for the order in which they lie."""
        return None

    def matrix(self, expert: int) -> Self:
        """Return the unit of one expert of a stack: the same memory. Raises IndexError beyond the last."""
        one = self.with_tensors(self.weight[expert], self.scale[expert])
        if self._kernel_scale is not None:
            one._kernel_scale = (self._kernel_scale[0][expert], self._kernel_scale[1])
        return one

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> None:
        """Write rows of a matrix to `out`, as the reference dequant means them."""
        raise NotImplementedError


class BlockStoredWeight(StoredWeight):
    """One scale for each 128 x 128 block, counted from `first_row` of the unit.

    A slice of a unit's rows comes with the unit's whole scale grid and says with `first_row` where it begins.
    """

    scale_name = "weight_scale_inv"
    grid = "block"

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, first_row: int | None = None) -> None:
        super().__init__(weight, scale)
        self.first_row = first_row
        require_grid(weight, scale, first_row)

    def with_tensors(self, weight: torch.Tensor, scale: torch.Tensor) -> Self:
        """Return the same unit with other tensors."""
        return type(self)(weight, scale, self.first_row)

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> None:
        """Write rows of the weight to `out` (`hf.fp8_blockwise.dequant@1`)."""
        upcast_block_scaled(self.weight[begin:end], self.scale, out, first_row=(self.first_row or 0) + begin)

    def _scale_rows(self) -> torch.Tensor | None:
        if not self.first_row:
            return None
        rows = torch.arange(self.first_row, self.first_row + self.weight.shape[-2], device=self.weight.device)
        return (rows // BLOCK).to(torch.int32)


class MappedBlockWeight(StoredWeight):
    """A matrix in blocks of which each row says which row of the scale grid is its own: what the operator takes."""

    grid = "block"

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor) -> None:
        super().__init__(weight, scale)
        self.rows = rows

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> None:
        """Write rows of the weight to `out` (`hf.fp8_blockwise.dequant@1`)."""
        upcast_mapped_blocks(self.weight[begin:end], self.scale, self.rows[begin:end], out)


class RowStoredWeight(StoredWeight):
    """One scale for each row, `[out]` or `[out, 1]`."""

    scale_name = "weight_scale"
    grid = "row"

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__(weight, scale)
        row_scale(weight, scale)  # raises ValueError

    def kernel_scale(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the scale as kernels take it, F32 `[out]`."""
        return self._kernel_scale or (row_scale(self.weight, self.scale).contiguous(), None)

    def upcast(self, begin: int, end: int, out: torch.Tensor) -> None:
        """Write rows of the weight to `out` (`cozy.fp8_rowwise.dequant@1`)."""
        upcast_row_scaled(self.weight[begin:end], self.scale[begin:end], out)


def require_values(weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Raise ValueError for values that `value_faults` names."""
    faults = value_faults(weight, scale)
    if faults:
        raise ValueError(", ".join(faults))


def value_faults(weight: torch.Tensor, scale: torch.Tensor) -> list[str]:
    """Return what of a unit's values no resident lane computes with: NaN codes, and scales that are not finite or negative."""
    faults = []
    if weight.numel() and holds_nan(weight):  # two quick passes, and a slow one for bad weights
        faults.append(f"{int(((weight.view(torch.uint8) & 0x7F) == 0x7F).sum()):,} NaN codes")
    with exact_torch():  # elsewhere a subnormal number is not negative
        wide = scale.to(torch.float32)
        scales = int((~torch.isfinite(wide) | (wide < 0)).sum())
    if scales:
        faults.append(f"{scales:,} scales that are negative or not finite")
    return faults

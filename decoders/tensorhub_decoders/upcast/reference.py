"""The reference dequants: the formulas of the registry, in plain torch, which define what a contract's bytes mean.

`REFERENCE_DEQUANTS` finds them by the names that the registry gives them, to compare decoded weights with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tensorhub_decoders.upcast.cutting import BLOCK, strips

if TYPE_CHECKING:
    import torch

#: A part of a decoded weight, and what the reference formula says of it.
Compared = tuple["torch.Tensor", "torch.Tensor"]


def dequantize_block_scaled(weight: torch.Tensor, scale: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`hf.fp8_blockwise.dequant@1`: `f32(code) * f32(scale)` rounded to F32, then to nearest even to `out_dtype`.

    `weight` is float8_e4m3fn `[..., out, in]`, `scale` F32, BF16 or F16 `[..., ceil(out/128), ceil(in/128)]`. The two
    roundings are the contract: fusing them changes results. NaN codes stay NaN. Raises ValueError for a grid of
    another shape.
    """
    import torch

    *stack, rows, columns = weight.shape
    grid = (*stack, -(-rows // BLOCK), -(-columns // BLOCK))
    if tuple(scale.shape) != grid:
        raise ValueError(f"scale grid {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected {grid}")
    wide = scale.to(torch.float32)
    wide = wide.repeat_interleave(BLOCK, dim=-2)[..., :rows, :].repeat_interleave(BLOCK, dim=-1)[..., :columns]
    return (weight.to(torch.float32) * wide).to(out_dtype)


def dequantize_row_scaled(weight: torch.Tensor, scale: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`cozy.fp8_rowwise.dequant@1`: `f32(code) * f32(scale[row])` rounded to F32, then to nearest even to `out_dtype`.

    `weight` is float8_e4m3fn `[out, in]`, `scale` F32 or BF16 `[out]` or `[out, 1]`. Raises ValueError for a scale of another
    shape.
    """
    import torch

    column = (*weight.shape[:1], 1)
    if tuple(scale.shape) not in (column[:1], column):
        raise ValueError(f"scale {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected {column[:1]} or {column}")
    return (weight.to(torch.float32) * scale.to(torch.float32).reshape(column)).to(out_dtype)


def dequantize_unscaled(weight: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`cozy.fp8_storage.dequant@1`: `f32(code)`, rounded to nearest even to `out_dtype`; any shape."""
    import torch

    return weight.to(torch.float32).to(out_dtype)


def _block_scaled_parts(stored: Mapping[str, torch.Tensor], decoded: torch.Tensor) -> Iterator[Compared]:
    """Cut at the edges of blocks, so that the formula sees whole blocks and their scales."""
    matrices = (each.reshape(-1, *each.shape[-2:]) for each in (stored["weight"], stored["scale"], decoded))
    for weight, scale, out in zip(*matrices, strict=True):
        for begin, end in strips(*weight.shape, least=BLOCK):
            blocks = slice(begin // BLOCK, -(-end // BLOCK))
            yield out[begin:end], dequantize_block_scaled(weight[begin:end], scale[blocks], out_dtype=out.dtype)


def _row_scaled_parts(stored: Mapping[str, torch.Tensor], decoded: torch.Tensor) -> Iterator[Compared]:
    for begin, end in strips(*decoded.shape):
        rows = slice(begin, end)
        yield decoded[rows], dequantize_row_scaled(stored["weight"][rows], stored["scale"][rows], out_dtype=decoded.dtype)


def _unscaled_parts(stored: Mapping[str, torch.Tensor], decoded: torch.Tensor) -> Iterator[Compared]:
    codes, flat = stored["weight"].reshape(-1), decoded.reshape(-1)
    for begin, end in strips(codes.numel(), 1):
        yield flat[begin:end], dequantize_unscaled(codes[begin:end], out_dtype=decoded.dtype)


#: By its name in the registry, what compares a decoded weight with a formula part by part, given the unit's tensors by role: a
#: formula needs several F32 copies of a part.
REFERENCE_DEQUANTS: Final[Mapping[str, Callable[[Mapping[str, torch.Tensor], torch.Tensor], Iterator[Compared]]]] = {
    "hf.fp8_blockwise.dequant@1": _block_scaled_parts,
    "cozy.fp8_rowwise.dequant@1": _row_scaled_parts,
    "cozy.fp8_storage.dequant@1": _unscaled_parts,
}

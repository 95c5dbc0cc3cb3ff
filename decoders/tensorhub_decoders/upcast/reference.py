"""The reference dequants: the formulas of the registry, in plain torch, which define what a contract's bytes mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

#: Rows and columns of a block of `hf.fp8-blockwise@1`. It comes from the contract, and never from shapes.
BLOCK: Final = (128, 128)


def dequantize_block_scaled(weight: torch.Tensor, scale: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`hf.fp8_blockwise.dequant@1`: `f32(code) * f32(scale)` rounded to F32, then to nearest even to `out_dtype`.

    `weight` is float8_e4m3fn `[..., out, in]`, `scale` F32, BF16 or F16 `[..., ceil(out/128), ceil(in/128)]`. The two
    roundings are the contract: fusing them changes results. NaN codes stay NaN. Raises ValueError for a grid of
    another shape.
    """
    import torch

    *stack, rows, columns = weight.shape
    grid = (*stack, -(-rows // BLOCK[0]), -(-columns // BLOCK[1]))
    if tuple(scale.shape) != grid:
        raise ValueError(f"scale grid {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected {grid}")
    wide = scale.to(torch.float32)
    wide = wide.repeat_interleave(BLOCK[0], dim=-2)[..., :rows, :].repeat_interleave(BLOCK[1], dim=-1)[..., :columns]
    return (weight.to(torch.float32) * wide).to(out_dtype)


def dequantize_row_scaled(weight: torch.Tensor, scale: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`cozy.fp8_rowwise.dequant@1`: `f32(code) * scale[row]` rounded to F32, then to nearest even to `out_dtype`.

    `weight` is float8_e4m3fn `[out, in]`, `scale` F32 `[out]`. Raises ValueError for a scale of another shape.
    """
    import torch

    if scale.shape != weight.shape[:1]:
        raise ValueError(f"scale {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected {tuple(weight.shape[:1])}")
    return (weight.to(torch.float32) * scale.to(torch.float32)[:, None]).to(out_dtype)


def dequantize_unscaled(weight: torch.Tensor, *, out_dtype: torch.dtype) -> torch.Tensor:
    """`cozy.fp8_storage.dequant@1`: `f32(code)`, rounded to nearest even to `out_dtype`; any shape."""
    import torch

    return weight.to(torch.float32).to(out_dtype)

"""Unquantized weights to FP8 E4M3 codes: the scale of each block or row, and the quotient rounded to nearest even, strip by strip.

What is stored is what is divided by: the quotient is computed in F32 with the F32 scale that is returned. It is clamped
before it is cast, because casts differ on what lies beyond the greatest code: torch 2.13 saturates, others give NaN.
"""

from __future__ import annotations

from typing import Final

import torch

from tensorhub_decoders.upcast.cutting import BLOCK, strips

#: The greatest finite E4M3 value.
E4M3_MAX: Final = 448.0

#: The least positive F32 number: what a scale is that would round to zero. Codes times it are exact.
_LEAST_SCALE: Final = 2.0**-149

_UNQUANTIZED: Final = (torch.bfloat16, torch.float16, torch.float32)


class NotFiniteError(ValueError):
    """A source holds infinities or NaN, for which there is no scale; `count` says how many."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"{count} values are not finite")


def quantize_block_scaled(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes and the scales of a weight, one scale for each block of 128 x 128.

    `weight` is BF16, F16 or F32 `[..., out, in]`. Codes are float8_e4m3fn of its shape, scales F32
    `[..., ceil(out/128), ceil(in/128)]`: the greatest magnitude of a block over 448, or 1 for a block of zeros. Raises
    `NotFiniteError`, and ValueError for another dtype.
    """
    _require_unquantized(weight)
    *stack, rows, columns = weight.shape
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scale = torch.empty((*stack, down, across), dtype=torch.float32)
    unusable = 0
    matrices = (each.view(-1, *each.shape[-2:]) for each in (weight.contiguous(), codes, scale))
    for matrix, its_codes, its_scale in zip(*matrices, strict=True):
        for begin, end in strips(rows, columns, least=BLOCK):
            strip = matrix[begin:end].to(torch.float32, copy=True).view(-(-(end - begin) // BLOCK), -1, columns)
            largest = strip.abs().amax(dim=1)
            padded = torch.nn.functional.pad(largest, (0, across * BLOCK - columns))
            scales = _scales_of(padded.view(-1, across, BLOCK).amax(dim=-1))
            unusable += _count_not_finite(strip, scales)
            spread = scales.repeat_interleave(BLOCK, dim=-1)[:, None, :columns]
            its_codes[begin:end] = _rounded(strip.div_(spread)).view(end - begin, columns)
            its_scale[begin // BLOCK : begin // BLOCK + scales.shape[0]] = scales
    if unusable:
        raise NotFiniteError(unusable)
    return codes, scale


def quantize_row_scaled(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes and the scales of a weight, one scale for each row.

    `weight` is BF16, F16 or F32 `[out, in]`. Codes are float8_e4m3fn of its shape, scales F32 `[out]`: the greatest
    magnitude of a row over 448, or 1 for a row of zeros. Raises `NotFiniteError`, and ValueError for another dtype.
    """
    _require_unquantized(weight)
    rows, columns = weight.shape
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scale = torch.empty(rows, dtype=torch.float32)
    unusable = 0
    for begin, end in strips(rows, columns):
        strip = weight[begin:end].to(torch.float32, copy=True)
        scales = _scales_of(strip.abs().amax(dim=1))
        unusable += _count_not_finite(strip, scales)
        codes[begin:end] = _rounded(strip.div_(scales[:, None]))
        scale[begin:end] = scales
    if unusable:
        raise NotFiniteError(unusable)
    return codes, scale


def quantize_unscaled(weight: torch.Tensor) -> torch.Tensor:
    """Return the codes of a weight without scales: each value, clamped to +-448 and rounded; float8_e4m3fn of the weight's shape.

    `weight` is BF16, F16 or F32 of any shape. Raises `NotFiniteError`, and ValueError for another dtype.
    """
    _require_unquantized(weight)
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    flat, its_codes = weight.reshape(-1), codes.view(-1)
    unusable = 0
    for begin, end in strips(flat.numel(), 1):
        strip = flat[begin:end].to(torch.float32, copy=True)
        unusable += _count_not_finite(strip, strip)
        its_codes[begin:end] = _rounded(strip)
    if unusable:
        raise NotFiniteError(unusable)
    return codes


def _require_unquantized(weight: torch.Tensor) -> None:
    if weight.dtype not in _UNQUANTIZED:
        raise ValueError(f"BF16, F16 or F32 to float8_e4m3fn, not {weight.dtype}")


def _scales_of(largest: torch.Tensor) -> torch.Tensor:
    """Greatest magnitudes to scales. One that is too small for its 448th part to be a number gets the least scale there is."""
    return torch.where(largest == 0, 1.0, (largest / E4M3_MAX).clamp_min(_LEAST_SCALE))


def _count_not_finite(strip: torch.Tensor, telling: torch.Tensor) -> int:
    """Count what is not finite in a strip, if the scales, which are fewer, tell that there is something."""
    return 0 if bool(torch.isfinite(telling).all()) else int((~torch.isfinite(strip)).sum())


def _rounded(quotient: torch.Tensor) -> torch.Tensor:
    return quotient.clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)

"""FP8 units to unquantized tensors, each proved against the reference formula bit for bit before it is given out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from tensorhub_contracts.errors import FaultError
from tensorhub_decoders.upcast.reference import BLOCK, dequantize_block_scaled, dequantize_row_scaled, dequantize_unscaled
from tensorhub_decoders.upcast.strips import upcast_block_scaled, upcast_row_scaled, upcast_unscaled

#: About how many elements the reference formula is asked for at a time: it needs several F32 copies of them.
STRIP_ELEMENTS: Final = 1 << 20

_BITS: Final = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}

#: A part of the result, and what the reference formula says of it.
_Compared = tuple[torch.Tensor, torch.Tensor]


class UnfitValuesError(ValueError):
    """An unquantized tensor would hold what it should not: so many infinities, so many NaN."""

    def __init__(self, infinities: int, nans: int) -> None:
        self.infinities, self.nans = infinities, nans
        super().__init__(f"{infinities} infinities and {nans} NaN")


def decode_unit(contract: str, unit: str, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, *, allow_nan: bool) -> torch.Tensor:
    """Return a unit's weight as an unquantized tensor of `dtype`, BF16, F16 or F32.

    `tensors` are the unit's by role, `contract` is one of the three FP8 contracts. Raises `FaultError` if the fast path
    and the reference formula differ in one bit (NaN counts as one value), and `UnfitValuesError` for infinities, and for NaN
    unless they are allowed.
    """
    weight = tensors["weight"]
    out = torch.empty(weight.shape, dtype=dtype)
    if contract == "hf.fp8-blockwise@1":
        upcast_block_scaled(weight, tensors["scale"], out)
        compared = _against_blocks(weight, tensors["scale"], out)
    elif contract == "cozy.fp8-rowwise@1":
        upcast_row_scaled(weight, tensors["scale"], out)
        compared = _against_rows(weight, tensors["scale"], out)
    else:
        upcast_unscaled(weight, out)
        compared = _against_codes(weight, out)
    infinities = nans = 0
    for found, expected in compared:
        if not _same(found, expected):
            raise FaultError(
                [f"{unit}: the decoded weight is not what the reference dequant of {contract} gives; nothing of it was written"]
            )
        if not bool(torch.isfinite(found).all()):
            infinities += int(found.isinf().sum())
            nans += int(found.isnan().sum())
    if infinities or (nans and not allow_nan):
        raise UnfitValuesError(infinities, 0 if allow_nan else nans)
    return out


def cast_unquantized(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return an unquantized tensor in another dtype; raises `UnfitValuesError` if a finite value becomes an infinity."""
    out = tensor.to(dtype)
    overflowing = int(out.isinf().sum()) - int(tensor.isinf().sum())
    if overflowing:
        raise UnfitValuesError(overflowing, 0)
    return out


def _against_blocks(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> Iterator[_Compared]:
    """Cut at the edges of blocks, so that the reference formula sees whole blocks and their scales."""
    if weight.dim() > 2:
        for expert in range(weight.shape[0]):
            yield from _against_blocks(weight[expert], scale[expert], out[expert])
        return
    blocks = max(1, STRIP_ELEMENTS // max(1, weight.shape[1] * BLOCK[0]))
    for first in range(0, scale.shape[0], blocks):
        rows = slice(first * BLOCK[0], (first + blocks) * BLOCK[0])
        yield out[rows], dequantize_block_scaled(weight[rows], scale[first : first + blocks], out_dtype=out.dtype)


def _against_rows(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> Iterator[_Compared]:
    height = max(1, STRIP_ELEMENTS // max(1, weight.shape[1]))
    for begin in range(0, weight.shape[0], height):
        rows = slice(begin, begin + height)
        yield out[rows], dequantize_row_scaled(weight[rows], scale[rows], out_dtype=out.dtype)


def _against_codes(weight: torch.Tensor, out: torch.Tensor) -> Iterator[_Compared]:
    codes, flat = weight.reshape(-1), out.view(-1)
    for begin in range(0, codes.numel(), STRIP_ELEMENTS):
        part = slice(begin, begin + STRIP_ELEMENTS)
        yield flat[part], dequantize_unscaled(codes[part], out_dtype=out.dtype)


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, where a NaN is a NaN whatever its payload."""
    bits = _BITS[found.dtype]
    if torch.equal(found.view(bits), expected.view(bits)):
        return True
    return bool(((found.view(bits) == expected.view(bits)) | (found.isnan() & expected.isnan())).all())

"""FP8 E4M3 codes to wider floats, strip by strip: the reference dequants' results, bit for bit, in a fraction of their time.

torch casts FP8 to F32 one scalar at a time. Here the codes of a strip are shifted into the bits of F16 numbers, which
vector instructions widen. A strip is about 2^20 elements, so that what one step writes the next one finds in cache. Each step
has as many threads as torch has in the calling thread: one where weights are loaded side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch

from tensorhub_decoders.upcast.buffers import scratch
from tensorhub_decoders.upcast.cutting import BLOCK, strips

#: A shifted code is an F16 number that is its value times 2^-8, also for subnormal codes; the scale makes up for it.
_SHIFTED: Final = 256.0

#: Multiplies a strip of F32 numbers by its scales: the strip, its first row in the weight, and the scales.
_Multiply = Callable[[torch.Tensor, int, torch.Tensor], None]


def upcast_block_scaled(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, *, first_row: int | None = None) -> torch.Tensor:
    """Write `hf.fp8_blockwise.dequant@1` of a weight to `out`, and return it.

    `weight` is float8_e4m3fn `[..., out, in]`, contiguous along rows; `scale` F32, BF16 or F16, with one number for each
    block of 128 x 128 of it; `out` BF16, F16 or F32 of the weight's shape. A slice of rows says with `first_row` where
    it begins in its unit, and comes with the scale of the whole unit. Raises ValueError for shapes that do not fit.
    """
    origin = require_grid(weight, scale, first_row)
    columns = weight.shape[-1]
    _require_out(weight, out)
    if weight.dim() > 2:
        for expert in range(weight.shape[0]):
            upcast_block_scaled(weight[expert], scale[expert], out[expert], first_row=first_row)
        return out
    first = origin // BLOCK
    needed = scale[first : -(-(origin + weight.shape[0]) // BLOCK)].to(torch.float32)
    # One number for each column: then a row of the weight and its scales lie side by side, also where a block is cut off.
    spread = needed.repeat_interleave(BLOCK, dim=1)[:, :columns]

    def multiply(strip: torch.Tensor, row: int, scales: torch.Tensor) -> None:
        block, height = (origin + row) // BLOCK - first, strip.shape[0] // BLOCK
        if height:
            strip.view(height, BLOCK, columns).mul_(scales[block : block + height, None])
        else:
            strip.mul_(scales[block])

    return _upcast(weight, spread, out, multiply, strips(weight.shape[0], columns, origin=origin))


def upcast_mapped_blocks(weight: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write `hf.fp8_blockwise.dequant@1` of a weight whose rows name their rows of the scale grid to `out`, and return it.

    `weight` is float8_e4m3fn `[out, in]`, `scale` F32 `[any, ceil(in / 128)]`, `rows` integers `[out]`: the matrices of a
    group lie one after the other, each with blocks that begin at its own first row. Raises ValueError for shapes that do not fit.
    """
    columns = weight.shape[-1]
    if weight.dim() != 2 or scale.dim() != 2 or scale.shape[1] != -(-columns // BLOCK) or rows.shape != weight.shape[:1]:
        raise ValueError(f"scale {tuple(scale.shape)} and rows {tuple(rows.shape)} for weight {tuple(weight.shape)}")
    _require_out(weight, out)

    def multiply(strip: torch.Tensor, row: int, scales: torch.Tensor) -> None:
        own = scales[rows[row : row + strip.shape[0]].long()]
        strip.mul_(own.repeat_interleave(BLOCK, dim=1)[:, :columns])

    return _upcast(weight, scale, out, multiply, strips(*weight.shape))


def upcast_row_scaled(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write `cozy.fp8_rowwise.dequant@1` of a weight to `out`, and return it.

    `weight` is float8_e4m3fn `[out, in]`, `scale` F32 or BF16 `[out]` or `[out, 1]`, `out` BF16, F16 or F32 of the weight's
    shape. Raises ValueError for shapes that do not fit.
    """
    scale = row_scale(weight, scale)
    _require_out(weight, out)

    def multiply(strip: torch.Tensor, row: int, scales: torch.Tensor) -> None:
        strip.mul_(scales[row : row + strip.shape[0], None])

    return _upcast(weight, scale, out, multiply, strips(*weight.shape))


def row_scale(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the scales of a matrix's rows, `[out]` or `[out, 1]` as stored, as F32 `[out]`, which holds each of them exactly.

    Raises ValueError for a weight that is no matrix, and for a scale of another shape.
    """
    if weight.dim() != 2 or tuple(scale.shape) not in ((weight.shape[0],), (weight.shape[0], 1)):
        rows = tuple(weight.shape[:1])
        raise ValueError(f"scale {tuple(scale.shape)} for weight {tuple(weight.shape)}: expected two dimensions and {rows} or {(*rows, 1)}")
    return scale.reshape(-1).to(torch.float32)


def upcast_unscaled(weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write `cozy.fp8_storage.dequant@1` of a weight of any shape to `out`, and return it."""
    _require_out(weight, out)
    flat = (1, -1) if weight.dim() < 2 else (weight.shape[0], -1)
    if weight.numel():

        def multiply(strip: torch.Tensor, row: int, scales: torch.Tensor) -> None:
            strip.mul_(scales)

        matrix = weight.reshape(flat)
        _upcast(matrix, torch.ones(1), out.view(flat), multiply, strips(*matrix.shape))
    return out


def require_grid(weight: torch.Tensor, scale: torch.Tensor, first_row: int | None) -> int:
    """Return the row of the unit that a weight begins at; refuse a grid that is not that of the unit, or does not reach as far."""
    rows, columns = weight.shape[-2:]
    origin = first_row or 0
    grid = (*weight.shape[:-2], -(-(origin + rows) // BLOCK), -(-columns // BLOCK))
    reaches = scale.dim() == weight.dim() and scale.shape[-2] >= grid[-2]
    found = (*scale.shape[:-2], grid[-2], scale.shape[-1]) if first_row is not None and reaches else tuple(scale.shape)
    if found != grid:
        place = "" if first_row is None else f" from row {first_row} on"
        raise ValueError(f"scale grid {tuple(scale.shape)} for weight {tuple(weight.shape)}{place}: expected {grid}")
    return origin


def _require_out(weight: torch.Tensor, out: torch.Tensor) -> None:
    if weight.dtype is not torch.float8_e4m3fn or out.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(f"float8_e4m3fn to BF16, F16 or F32, not {weight.dtype} to {out.dtype}")
    if out.shape != weight.shape:
        raise ValueError(f"out {tuple(out.shape)} for weight {tuple(weight.shape)}")


def _upcast(
    weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor, multiply: _Multiply, parts: Iterable[tuple[int, int]]
) -> torch.Tensor:
    """Go over a matrix in strips: widen the codes, multiply in F32, round to the output's dtype."""
    if not weight.numel():
        return out
    columns = weight.shape[1]
    grown = scale * _SHIFTED
    folds = bool(torch.isfinite(grown).all())  # exact, unless it overflows
    signed = weight.view(torch.int8)
    direct = out.dtype is torch.float32

    def convert(begin: int, end: int) -> None:
        halves = scratch("halves", end - begin, columns, torch.int16)
        strip = out[begin:end] if direct else scratch("floats", end - begin, columns, torch.float32)
        codes = signed[begin:end]
        if holds_nan(codes):
            strip.copy_(weight[begin:end])  # torch's own cast, slow and right for every code
            multiply(strip, begin, scale)
        else:
            halves.copy_(codes)
            halves.mul_(128).bitwise_and_(-0x4001)  # exponent and mantissa move to their places; the sign stays at the top
            strip.copy_(halves.view(torch.float16))
            if not folds:
                strip.mul_(_SHIFTED)
            multiply(strip, begin, grown if folds else scale)
        if not direct:
            out[begin:end].copy_(strip)

    for begin, end in parts:
        convert(begin, end)
    return out


def holds_nan(codes: torch.Tensor) -> bool:
    """Whether one of some E4M3 codes, at least one, is NaN: 0x7F, the greatest of the signed bytes, or 0xFF, of the unsigned."""
    return int(codes.view(torch.int8).amax()) == 0x7F or int(codes.view(torch.uint8).amax()) == 0xFF

"""The operator `tensorhub::block_fp8_linear` on stored weights: its CPU implementation, and the call for a device with kernels.

torch's compiler sees one operator on both devices, and looks into neither. Importing this module makes no CUDA call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.operator import block_fp8_linear
from torch.nn import functional

from tensorhub_decoders.resident.cpu_linear import project_on_cpu
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight, MappedBlockWeight, RowStoredWeight, StoredWeight
from tensorhub_decoders.upcast.cutting import BLOCK

#: The arithmetic of a lane's activations, by their bits.
COMPUTE_OF_BITS: Final = {8: "w8a8", 16: "w8a16", 32: "w8a32"}


def project_by_operator(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None, activation_bits: int) -> torch.Tensor:
    """Return `x W^T + b` `[..., out]` through the operator, one call for each part; raises as the operator does."""
    results = []
    begin = 0
    for part in parts:
        end = begin + part.weight.shape[0]
        own_bias = None if bias is None else bias[begin:end].to(x.dtype)
        codes = part.weight.view(torch.uint8)
        scale, scale_rows = part.kernel_scale()
        results.append(block_fp8_linear(x, codes, scale, scale_rows, own_bias, COMPUTE_OF_BITS[activation_bits], part.grid))
        begin = end
    return results[0] if len(results) == 1 else torch.cat(results, dim=-1)


def block_fp8_linear_cpu(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> torch.Tensor:
    """Return what the operator means on the CPU: strips of the weight are upcast and multiplied.

    For w8a16 the weight is rounded to BF16 before it is multiplied, which kernels do not do. For w8a8 activations are
    quantized as kernels quantize them, and multiplied in F32: a reference, which no lane of the CPU takes. Operands are as
    `require_operands` says.
    """
    require_operands(x, weight, scale, scale_rows, bias, compute, grid)
    stored: StoredWeight
    codes = weight.contiguous().view(torch.float8_e4m3fn)
    if grid == "row":
        stored = RowStoredWeight(codes, scale)
    elif scale_rows is not None:
        stored = MappedBlockWeight(codes, scale, scale_rows)
    else:
        stored = BlockStoredWeight(codes, scale)
    if compute != "w8a8":
        return project_on_cpu(x, (stored,), bias)
    wide_bias = None if bias is None else bias.to(torch.float32)
    return project_on_cpu(_quantized(x), (stored,), wide_bias).to(x.dtype)


def _quantized(x: torch.Tensor) -> torch.Tensor:
    """Return activations in F32 as they are after each group of 128 was quantized to E4M3 by its largest magnitude over 448."""
    columns = x.shape[-1]
    count = -(-columns // BLOCK)
    groups = functional.pad(x.to(torch.float32), (0, -columns % BLOCK)).reshape(*x.shape[:-1], count, BLOCK)
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 448.0
    codes = (groups / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    widened: torch.Tensor = codes.to(torch.float32) * scale
    return widened.flatten(-2)[..., :columns]


_library: Final[Any] = torch.library.Library("tensorhub", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch does not annotate it
_library.impl("block_fp8_linear", block_fp8_linear_cpu, "CPU")

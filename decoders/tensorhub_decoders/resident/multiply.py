"""Activations times stored weights: strip by strip on the CPU, by the operator `tensorhub::block_fp8_linear` elsewhere.

torch's compiler sees one operator on both devices, and looks into neither. Importing this module registers the operator's CPU
implementation, and makes no CUDA call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.torch_op import block_fp8_linear
from torch.nn import functional

from tensorhub_decoders.exact_torch import exact_torch
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight, MappedBlockWeight, RowStoredWeight, StoredWeight
from tensorhub_decoders.upcast.buffers import scratch
from tensorhub_decoders.upcast.cutting import BLOCK, strips
from tensorhub_decoders.upcast.workers import for_each_strip

#: The dtypes of activations, by the bits that a lane's name gives them: activations of 8 bits are quantized from BF16 as they come.
ACTIVATIONS: Final = {8: (torch.bfloat16,), 16: (torch.bfloat16, torch.float16), 32: (torch.float32,)}

#: The arithmetic of a lane's activations, by their bits.
COMPUTE_OF_BITS: Final = {8: "w8a8", 16: "w8a16", 32: "w8a32"}


class ResidentOperand:
    """Stands in for a matrix that a model's own code multiplies with: `torch.nn.functional.linear(x, operand, bias)`.

    It is units one after the other along rows, each with its own scale and block origin: as fused projections are. No other
    function of torch takes it: using it otherwise raises TypeError, and never makes an ordinary matrix of it.
    """

    def __init__(self, parts: Sequence[StoredWeight], activation_bits: int) -> None:
        self.parts = tuple(parts)
        self.activation_bits = activation_bits
        self.device = self.parts[0].weight.device
        self.shape = torch.Size((sum(part.weight.shape[0] for part in self.parts), self.parts[0].weight.shape[1]))

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Multiply, if that is what is asked."""
        given = dict(zip(("input", "weight", "bias"), args, strict=False)) | (kwargs or {})
        if func is not functional.linear or not isinstance(given["weight"], ResidentOperand) or isinstance(given["input"], ResidentOperand):
            return NotImplemented
        operand: ResidentOperand = given["weight"]
        return project(given["input"], operand.parts, given.get("bias"), operand.activation_bits)


def project(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None, activation_bits: int) -> torch.Tensor:
    """Return `x W^T + b` in the dtype of `x`, `[..., in]`, with W the rows of all parts.

    On the CPU, strips of rows are upcast and multiplied; on another device, and where torch compiles, the operator does it,
    which judges its operands itself. Raises ValueError for the dtype of another lane, another width and another device,
    NotImplementedError where a gradient is recorded.
    """
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        raise NotImplementedError("no gradient is computed: stored codes have none. Call it under torch.no_grad().")
    if x.device.type == "cpu" and activation_bits != 8 and not (torch.compiler.is_compiling() and x.dtype is not torch.float16):
        _require_fitting(x, parts[0].weight, activation_bits)
        return project_on_cpu(x, parts, bias)
    return _project_by_operator(x, parts, bias, activation_bits)


def _require_fitting(x: torch.Tensor, weight: torch.Tensor, activation_bits: int) -> None:
    """Raise ValueError for activations that strips of a weight cannot be multiplied with."""
    if x.dtype not in ACTIVATIONS[activation_bits]:
        raise ValueError(f"activations of {activation_bits} bits are asked for, not {x.dtype}")
    if x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"activations {tuple(x.shape)} for weights of {weight.shape[1]} columns")
    if x.device != weight.device:
        raise ValueError(f"activations on {x.device} for weights on {weight.device}")


def project_on_cpu(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None) -> torch.Tensor:
    """Return `x W^T + b` in the dtype of `x`, `[..., in]`, with W the rows of all parts.

    Each strip of rows is multiplied as `torch.nn.functional.linear` multiplies: an output element is one sum over
    all of `in`, in the order of that function for as many rows as a strip has: a weight of one strip is multiplied as an
    ordinary matrix is.
    """
    heights = [part.weight.shape[0] for part in parts]
    rows, columns = sum(heights), parts[0].weight.shape[1]
    flat = x.reshape(-1, columns)
    y = torch.empty(flat.shape[0], rows, dtype=x.dtype)

    def multiply(begin: int, end: int) -> None:
        with torch.inference_mode(mode=False):  # memory that is kept from call to call, and may be written in either mode
            strip = scratch("upcast rows", end - begin, columns, x.dtype)
            first = 0
            for part, height in zip(parts, heights, strict=True):
                start, stop = max(begin - first, 0), min(end - first, height)
                if start < stop:
                    part.upcast(start, stop, strip[first + start - begin : first + stop - begin])
                first += height
        y[:, begin:end] = functional.linear(flat, strip, None if bias is None else bias[begin:end].to(x.dtype))

    for_each_strip(multiply, strips(rows, columns, least=BLOCK, join_rest=True))
    return y.view(*x.shape[:-1], rows)


def _project_by_operator(x: torch.Tensor, parts: Sequence[StoredWeight], bias: torch.Tensor | None, activation_bits: int) -> torch.Tensor:
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
    with exact_torch():
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

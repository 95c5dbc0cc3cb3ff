"""What a module multiplies with: stored weights in the place of a dense matrix, on whichever device they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.nn import functional

from tensorhub_decoders.resident.cpu_linear import project_on_cpu
from tensorhub_decoders.resident.operator import project_by_operator
from tensorhub_decoders.resident.stored_weight import StoredWeight

#: The dtypes of activations, by the bits that a lane's name gives them: activations of 8 bits are quantized from BF16 as they come.
ACTIVATIONS: Final = {8: (torch.bfloat16,), 16: (torch.bfloat16, torch.float16), 32: (torch.float32,)}


class ResidentOperand:
    """Stands in for a matrix that a model's own code multiplies with: `torch.nn.functional.linear(x, operand, bias)`.

    It is units one after the other along rows, each with its own scale and block origin: as fused projections are. No other
    function of torch takes it: using it otherwise raises TypeError, and never a dense copy.
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

    On the CPU, strips of rows are upcast and multiplied; on another device, and where torch compiles, the operator does it.
    Raises ValueError for the dtype of another lane, another width and another device, NotImplementedError where a gradient is
    recorded.
    """
    if x.dtype not in ACTIVATIONS[activation_bits]:
        raise ValueError(f"activations of {activation_bits} bits are asked for, not {x.dtype}")
    if x.shape[-1:] != parts[0].weight.shape[1:]:
        raise ValueError(f"activations {tuple(x.shape)} for weights of {parts[0].weight.shape[1]} columns")
    if x.device != parts[0].weight.device:
        raise ValueError(f"activations on {x.device} for weights on {parts[0].weight.device}")
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        raise NotImplementedError("no gradient is computed: stored codes have none. Call it under torch.no_grad().")
    if x.device.type == "cpu" and activation_bits != 8 and not (torch.compiler.is_compiling() and x.dtype is not torch.float16):
        return project_on_cpu(x, parts, bias)
    return project_by_operator(x, parts, bias, activation_bits)

"""The operator `tensorhub::block_fp8_linear` of torch: its schema, what it means for fake tensors, and its CUDA kernels.

Importing this module defines the operator; it makes no CUDA call. Its CPU implementation is registered by who has one.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import torch

from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.torch_op import block_fp8_linear_cuda

#: The operator, namespace and name.
NAME: Final = "tensorhub::block_fp8_linear"

_SCHEMA: Final = (
    "block_fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor? scale_rows, Tensor? bias, str compute, str grid) -> Tensor"
)

_library: Final[Any] = torch.library.Library("tensorhub", "DEF")  # type: ignore[no-untyped-call]  # torch does not annotate it
_library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))


def fake_block_fp8_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> torch.Tensor:
    """Return an empty y of the right shape `[..., N]`, dtype and device; refuses what the real operator refuses."""
    require_operands(x, weight, scale, scale_rows, bias, compute, grid)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _backward(ctx: Any, gradient: torch.Tensor) -> NoReturn:
    """Refuse: the weight is codes, which have no gradient, and nothing here trains the layers before it."""
    raise NotImplementedError(f"{NAME} computes no gradient: it is for inference. Call it under torch.no_grad() or torch.inference_mode().")


torch.library.register_fake(NAME, fake_block_fp8_linear, lib=_library)
torch.library.register_autograd(NAME, _backward, lib=_library)
_library.impl("block_fp8_linear", block_fp8_linear_cuda, "CUDA")

#: The operator itself: `block_fp8_linear(x, weight, scale, scale_rows, bias, compute, grid)`.
block_fp8_linear: Final = torch.ops.tensorhub.block_fp8_linear.default

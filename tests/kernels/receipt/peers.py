"""What others offer for the same projection, called as their documentation says, each with its operands made ahead of time.

Peers with FP8 activations get them quantized already, which the operator's w8a8 does inside the call: its times hold more work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import torch
from tensorhub_cuda.catalog import BLOCK


@attrs.frozen
class Projection:
    """A projection with several weights of the same shape: codes [n, k] each, one scale grid, x [m, k]."""

    n: int
    k: int
    m: int
    weights: tuple[torch.Tensor, ...]
    scale: torch.Tensor
    x: torch.Tensor
    x_f32: torch.Tensor

    @property
    def rotations(self) -> int:
        return len(self.weights)

    @classmethod
    def random(cls, n: int, k: int, m: int, device: torch.device, rotations: int) -> Projection:
        """Make one of random numbers: codes of values up to 28, that products of a hundred of them stay ordinary."""
        generator = torch.Generator(device).manual_seed(n * 31 + k)
        magnitudes = (torch.randint(0, 0x5F, (n, k), dtype=torch.uint8, device=device, generator=generator) for _ in range(rotations))
        signs = (torch.randint(0, 2, (n, k), dtype=torch.uint8, device=device, generator=generator) << 7 for _ in range(rotations))
        weights = tuple(magnitude | sign for magnitude, sign in zip(magnitudes, signs, strict=True))
        scale = torch.rand(-(-n // BLOCK), -(-k // BLOCK), device=device, generator=generator) * 2**-6 + 2**-8
        x = torch.randn(m, k, device=device, generator=generator)
        return cls(n, k, m, weights, scale, x.bfloat16(), x)

    def dense(self, index: int) -> torch.Tensor:
        """Return a weight in BF16."""
        values = self.weights[index].view(torch.float8_e4m3fn).float()
        return (values * _spread(self.scale, self.n, self.k)).bfloat16()

    def quantized_x(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x as E4M3 and its scales [m, k / 128]."""
        groups = self.x.float().view(self.m, self.k // BLOCK, BLOCK)
        scale = groups.abs().amax(dim=2).clamp(min=1e-12) / 448
        return (groups / scale[:, :, None]).to(torch.float8_e4m3fn).view(self.m, self.k), scale


def _spread(scale: torch.Tensor, n: int, k: int) -> torch.Tensor:
    return scale.repeat_interleave(BLOCK, 0)[:n].repeat_interleave(BLOCK, 1)[:, :k]


def _bf16_linear(of: Projection) -> Callable[[int], torch.Tensor]:
    """torch's BF16 product of a weight that was upcast ahead of time: twice the bytes, and what w8a16 replaces."""
    weights = [of.dense(index) for index in range(of.rotations)]
    return lambda index: torch.nn.functional.linear(of.x, weights[index])


def _scaled_mm_rowwise(of: Projection) -> Callable[[int], torch.Tensor]:
    """torch._scaled_mm with a scale a token and a scale a row of the weight: another layout, of less precision."""
    scale_x = of.x.float().abs().amax(dim=1, keepdim=True) / 448
    x = (of.x.float() / scale_x).to(torch.float8_e4m3fn)
    weights, scales = [], []
    for index in range(of.rotations):
        dense = of.dense(index).float()
        scales.append((dense.abs().amax(dim=1, keepdim=True) / 448).t().contiguous())
        weights.append((dense / scales[-1].t()).to(torch.float8_e4m3fn))
    return lambda index: torch._scaled_mm(x, weights[index].t(), scale_x, scales[index], out_dtype=torch.bfloat16)


def _scaled_mm_blockwise(of: Projection) -> Callable[[int], torch.Tensor]:
    """torch's scaled_mm of 1 x 128 activations and 128 x 128 weights, which takes outer scales with the first dimension contiguous."""
    from torch.nn.functional import ScalingType, scaled_mm

    x, scale = of.quantized_x()
    scale_x = scale.t().contiguous().t()
    recipes = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128

    def launch(index: int) -> torch.Tensor:
        weight = of.weights[index].view(torch.float8_e4m3fn).t()
        return scaled_mm(x, weight, scale_x, recipes[0], of.scale.t(), recipes[1], output_dtype=torch.bfloat16)

    return launch


def _triton_blockwise(of: Projection) -> Callable[[int], torch.Tensor]:
    from tests.kernels.receipt.triton_peer import block_fp8_matmul

    x, scale_x = of.quantized_x()
    return lambda index: block_fp8_matmul(x, scale_x, of.weights[index].view(torch.float8_e4m3fn), of.scale)


#: By the name in the table.
PEERS: Mapping[str, Callable[[Projection], Callable[[int], torch.Tensor]]] = {
    "torch BF16 linear": _bf16_linear,
    "torch scaled_mm, scales by row": _scaled_mm_rowwise,
    "torch scaled_mm, scales by block": _scaled_mm_blockwise,
    "Triton w8a8, scales by block": _triton_blockwise,
}

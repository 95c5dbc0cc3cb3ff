"""Operands of a projection in every layout, with all scales different, and what the projection is in float64."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import torch

DTYPES = {"w8a16": torch.bfloat16, "w8a32": torch.float32, "w8a8": torch.bfloat16}


@attrs.frozen
class Operands:
    """The arguments of the operator, as it takes them."""

    x: torch.Tensor
    weight: torch.Tensor
    scale: torch.Tensor
    scale_rows: torch.Tensor | None
    bias: torch.Tensor | None
    compute: str
    grid: str

    @property
    def call(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, str, str]:
        """All of them, in the operator's order."""
        return self.x, self.weight, self.scale, self.scale_rows, self.bias, self.compute, self.grid

    def on(self, device: str) -> Operands:
        """Return the same operands on another device, of the same strides."""
        tensors = [each if each is None else each.to(device) for each in self.call[:5]]
        return Operands(*tensors, self.compute, self.grid)  # type: ignore[arg-type]  # the first three are tensors


def operands(
    m: int,
    n: int,
    k: int,
    compute: str,
    grid: str,
    *,
    biased: bool = False,
    layout: str = "plain",
    members: tuple[int, ...] = (),
) -> Operands:
    """Return operands for `m` rows of activations in a layout; with `members`, n rows of several scale grids, one after the other."""
    generator = torch.Generator().manual_seed(m * 31 + n * 7 + k)
    dtype = DTYPES[compute]
    weight = torch.randint(0, 256, (n, k), dtype=torch.uint8, generator=generator)
    weight[(weight & 0x7F) == 0x7F] = 0x31
    x = torch.randn(m, k, generator=generator).to(dtype)
    bias = torch.randn(n, generator=generator).to(dtype) if biased else None
    columns, scale_rows = -(-k // 128), None
    if grid == "row":
        shape: tuple[int, ...] = (n,)
    elif members:
        blocks = [-(-size // 128) for size in members]
        begins = np.cumsum([0, *blocks[:-1]])
        scale_rows = torch.tensor([begin + row // 128 for begin, size in zip(begins, members, strict=True) for row in range(size)])
        scale_rows = scale_rows.to(torch.int32)
        shape = (sum(blocks), columns)
    else:
        shape = (-(-n // 128), columns)
    scale = (torch.rand(shape, generator=generator) + 0.5) * 0.01
    return Operands(*_laid_out(x, weight, layout), scale, scale_rows, bias, compute, grid)


def exact_y(case: Operands) -> torch.Tensor:
    """Return the projection in float64, from a decoder of codes that is not ours."""
    weight = torch.from_numpy(case.weight.contiguous().numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    n, k = weight.shape
    if case.grid == "row":
        scale = case.scale[:, None].expand(n, k)
    else:
        rows = torch.arange(n) // 128 if case.scale_rows is None else case.scale_rows.long()
        scale = case.scale[rows][:, torch.arange(k) // 128]
    y = case.x.double() @ (weight * scale.double()).T
    return y if case.bias is None else y + case.bias.double()


def _laid_out(x: torch.Tensor, weight: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    m, k = x.shape
    match layout:
        case "plain":
            return x, weight
        case "padded":
            return _inside(x, 0, 16), _inside(weight, 0, 32)
        case "offset":
            return _inside(x, 16, 32), _inside(weight, 16, 16)
        case "weight off by one":
            return x, _inside(weight, 1, 16)
        case "x off by one":
            return _inside(x, 1, 16), weight
        case "three dimensions":
            return x.view(2, m // 2, k), weight
        case "not collapsible":
            return _inside(x, 0, 16).view(2, m // 2, k).transpose(0, 1), weight
        case "vector":
            return x[0], weight
        case "one row of a wide matrix":
            return x.t().contiguous().t()[:1].contiguous().as_strided((1, k), (3, 1)), weight
        case "repeated row":
            return x[:1].expand(m, k), weight
    raise ValueError(layout)


def _inside(matrix: torch.Tensor, offset: int, padding: int) -> torch.Tensor:
    """Return the matrix inside a poisoned one, whose rows begin `offset` elements in and are `padding` longer in all."""
    poison = 0x7F if matrix.dtype is torch.uint8 else float("nan")
    around = torch.full((matrix.shape[0], matrix.shape[1] + padding), poison, dtype=matrix.dtype)
    inside = around[:, offset : offset + matrix.shape[1]]
    inside.copy_(matrix)
    return inside

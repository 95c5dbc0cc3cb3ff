"""The rules for the tensors of a projection: shapes, strides, dtypes and devices, which fake tensors have as real ones do."""

from __future__ import annotations

from typing import Final

import torch

from tensorhub_cuda.catalog import BLOCK
from tensorhub_cuda.errors import KernelArgumentError

#: The dtype of x, y and the bias, by compute.
DTYPES: Final = {"w8a16": torch.bfloat16, "w8a32": torch.float32, "w8a8": torch.bfloat16}

GRIDS: Final = ("block", "row")

#: Sizes are passed to kernels as 32-bit numbers.
LARGEST_INT32: Final = 2**31 - 1


def require_operands(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> None:
    """Raise KernelArgumentError with a sentence for each rule that an operand breaks.

    x `[..., K]` of the compute's dtype, weight uint8 `[N, K]`, both with their last dimension contiguous; scale float32
    and contiguous, `[ceil(N/128), ceil(K/128)]` for the grid "block" and `[N]` for "row"; scale_rows int32 `[N]`, only for
    "block" (then the grid has any number of rows); bias `[N]` of x's dtype; all on one device.
    """
    # Plain lines that look at each fact once, not a rule a function: every call of the operator passes here.
    violations: list[str] = []
    say = violations.append
    dtype = DTYPES.get(compute)
    x_shape, weight_shape, device = x.shape, weight.shape, x.device
    if dtype is None:
        say(f"compute: one of {', '.join(DTYPES)}, not {compute!r}")
    elif x.dtype is not dtype:
        say(f"x: {dtype} for {compute}, not {x.dtype}")
    if weight.dtype is not torch.uint8:
        say(f"weight: codes as torch.uint8 (a view will do), not {weight.dtype}")
    if len(x_shape) < 1:
        say("x: [..., K], not a scalar")
    elif x_shape[-1] > 1 and x.stride(-1) != 1:
        say(f"x: the last dimension contiguous, not of stride {x.stride(-1)}")
    if weight.device != device:
        say(f"weight: on {device}, as x, not on {weight.device}")
    if len(weight_shape) != 2:
        say(f"weight: [N, K], not {_shape(weight)}")
    else:
        rows, columns = weight_shape
        if columns > 1 and weight.stride(1) != 1:
            say(f"weight: the last dimension contiguous, not of stride {weight.stride(1)}")
        if rows > LARGEST_INT32 or columns > LARGEST_INT32:
            say(f"weight: at most {LARGEST_INT32:,} rows and columns, not {_shape(weight)}")
        if len(x_shape) and x_shape[-1] != columns:
            say(f"x {_shape(x)} and weight {_shape(weight)}: the last dimensions differ")
        violations += _scale_violations(scale, scale_rows, rows, columns, grid, device)
        if bias is not None:
            violations += _bias_violations(bias, rows, dtype, device)
    if violations:
        raise KernelArgumentError(violations)


def _scale_violations(
    scale: torch.Tensor, scale_rows: torch.Tensor | None, rows: int, columns: int, grid: str, device: torch.device
) -> list[str]:
    wanted: tuple[int, ...]
    if grid == "block":
        grid_rows = (rows + BLOCK - 1) // BLOCK if scale_rows is None or scale.dim() != 2 else scale.shape[0]
        wanted = (grid_rows, (columns + BLOCK - 1) // BLOCK)
    elif grid == "row":
        wanted = (rows,)
    else:
        return [f"grid: one of {', '.join(GRIDS)}, not {grid!r}"]
    violations = []
    if scale.dtype is not torch.float32 or scale.shape != wanted or not scale.is_contiguous() or scale.device != device:
        found = f"{scale.dtype} {_shape(scale)} of strides {list(scale.stride())} on {scale.device}"
        violations.append(f"scale: torch.float32 {list(wanted)}, contiguous, on {device} for the grid {grid}, not {found}")
    if scale_rows is None:
        return violations
    if grid == "row":
        violations.append("scale_rows: only for the grid block")
    if scale_rows.dtype is not torch.int32 or scale_rows.shape != (rows,) or not scale_rows.is_contiguous() or scale_rows.device != device:
        found = f"{scale_rows.dtype} {_shape(scale_rows)} of strides {list(scale_rows.stride())} on {scale_rows.device}"
        violations.append(f"scale_rows: torch.int32 [{rows}], contiguous, on {device}, not {found}")
    return violations


def _bias_violations(bias: torch.Tensor, rows: int, dtype: torch.dtype | None, device: torch.device) -> list[str]:
    if (dtype is None or bias.dtype is dtype) and bias.shape == (rows,) and bias.is_contiguous() and bias.device == device:
        return []
    found = f"{bias.dtype} {_shape(bias)} of strides {list(bias.stride())} on {bias.device}"
    return [f"bias: {dtype or bias.dtype} [{rows}], contiguous, on {device}, not {found}"]


def _shape(tensor: torch.Tensor) -> str:
    return f"[{', '.join(str(size) for size in tensor.shape)}]"

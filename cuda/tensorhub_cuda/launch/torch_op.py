"""The operator `tensorhub::block_fp8_linear` of torch: its schema, its result for fake tensors, and its implementation on CUDA tensors.

Importing this module defines the operator and makes no CUDA call. `tensorhub_decoders` registers an implementation for the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NoReturn

import torch

from tensorhub_cuda.catalog import BLOCK
from tensorhub_cuda.errors import KernelArgumentError
from tensorhub_cuda.launch.choose import choose_kernel, is_aligned, quantize_kernel
from tensorhub_cuda.launch.driver import launch_matrix, launch_quantize
from tensorhub_cuda.launch.loaded import LoadedKernel, device_sm, prepare_kernels
from tensorhub_cuda.launch.matrix_operands import MatrixOperands
from tensorhub_cuda.launch.operand_rules import LARGEST_INT32, require_operands

#: The operator, namespace and name.
NAME: Final = "tensorhub::block_fp8_linear"


def block_fp8_linear_cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> torch.Tensor:
    """Return `y = x W^T + bias` `[..., N]` in x's dtype, for a weight that stays FP8 codes and a scale beside it.

    Operands are as `require_operands` says; rows of the weight may have any stride. That the values of scale_rows are rows of the
    scale grid is not checked, as that would wait for the device. Launches on torch's current stream of the tensors' device and
    does not wait; allocates through torch only. Raises KernelArgumentError for wrong operands, and KernelUnavailable if no kernel
    takes them on this device.
    """
    require_operands(x, weight, scale, scale_rows, bias, compute, grid)
    device_index = _cuda_index(x.device)
    with torch.cuda.device(device_index):
        stream = torch.cuda.current_stream(device_index).cuda_stream
        return linear_on_stream(x, weight, scale, scale_rows, bias, compute, grid, device_index=device_index, stream=stream)


def prepare(device: torch.device | str | int, computes: Iterable[str]) -> tuple[LoadedKernel, ...]:
    """Compile and load every kernel of some computes on a device, so that a CUDA graph can capture their launches.

    Returns the kernels with their provenance. Raises KernelUnavailable (floor, nvrtc, driver, package, disabled),
    KernelArgumentError for a device that is not a CUDA device, and ValueError for an unknown compute.
    """
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    device_index = _cuda_index(device)
    with torch.cuda.device(device_index):
        return prepare_kernels(device_index, computes)


def linear_on_stream(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
    *,
    device_index: int,
    stream: int,
) -> torch.Tensor:
    """Return what `block_fp8_linear_cuda` does, for operands that keep the rules, on the current device and a stream (its handle)."""
    n, k = weight.shape
    y = x.new_empty((*x.shape[:-1], n))
    if y.numel() == 0:
        return y
    if k == 0:  # a sum of nothing
        return y.zero_() if bias is None else y.copy_(bias)
    rows = x if x.dim() == 2 else x.reshape(-1, k)  # copies where no one stride leads from row to row
    m = rows.shape[0]
    if m > LARGEST_INT32:
        raise KernelArgumentError([f"x: at most {LARGEST_INT32:,} rows, not {m:,}"])
    # The stride of a single row means nothing; its length does no harm.
    x_stride = rows.stride(0) if m > 1 else k
    weight_stride = weight.stride(0) if n > 1 else k
    x_pointer, x_scale_pointer, weight_pointer = rows.data_ptr(), 0, weight.data_ptr()
    if compute == "w8a8":
        kernel = choose_kernel(compute, m, k, _sm(device_index), is_aligned(weight_pointer, weight_stride))
        # The codes and their scales live until both kernels are enqueued; torch's allocator gives their memory to later
        # work of this stream only.
        codes, x_scale = _quantize(rows, x_stride, device_index=device_index, stream=stream)
        x_pointer, x_scale_pointer, x_stride = codes.data_ptr(), x_scale.data_ptr(), k
    else:
        aligned = is_aligned(weight_pointer, weight_stride, x_pointer, x_stride * rows.itemsize)
        kernel = choose_kernel(compute, m, k, _sm(device_index), aligned)
    by_block = grid == "block"
    operands = MatrixOperands(
        weight=weight_pointer,
        scale=scale.data_ptr(),
        scale_rows=0 if scale_rows is None else scale_rows.data_ptr(),
        x=x_pointer,
        x_scale=x_scale_pointer,
        bias=0 if bias is None else bias.data_ptr(),
        y=y.data_ptr(),
        weight_stride=weight_stride,
        x_stride=x_stride,
        m=m,
        n=n,
        k=k,
        scale_stride=-(-k // BLOCK) if by_block else 1,
        scale_row_shift=7 if by_block else 0,
        scale_column_step=1 if by_block else 0,
    )
    launch_matrix(kernel, operands, device_index=device_index, stream=stream)
    return y


def _quantize(rows: torch.Tensor, x_stride: int, *, device_index: int, stream: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return FP8 codes `[m, k]` as uint8, and F32 scales `[m, ceil(k/128)]`, of BF16 activations."""
    m, k = rows.shape
    codes = rows.new_empty((m, k), dtype=torch.uint8)
    x_scale = rows.new_empty((m, -(-k // BLOCK)), dtype=torch.float32)
    launch_quantize(
        quantize_kernel(),
        x=rows.data_ptr(),
        codes=codes.data_ptr(),
        x_scale=x_scale.data_ptr(),
        x_stride=x_stride,
        m=m,
        k=k,
        device_index=device_index,
        stream=stream,
    )
    return codes, x_scale


@lru_cache(maxsize=64)
def _sm(device_index: int) -> int:
    return device_sm(device_index)


def _cuda_index(device: torch.device) -> int:
    """Return the number of a CUDA device; of `cuda` without a number that of the current one."""
    if device.type != "cuda":
        raise KernelArgumentError([f"device: a CUDA device, not {device}"])
    return torch.cuda.current_device() if device.index is None else device.index


# ---- The operator. --------------------------------------------------------------------------------------------------------


def fake_block_fp8_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> torch.Tensor:
    """Return an empty y of the right shape `[..., N]`, dtype and device; raises KernelArgumentError as the operator does."""
    require_operands(x, weight, scale, scale_rows, bias, compute, grid)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _backward(ctx: Any, gradient: torch.Tensor) -> NoReturn:
    """Refuse: the weight is codes, which have no gradient, and nothing here trains the layers before it."""
    raise NotImplementedError(f"{NAME} computes no gradient: it is for inference. Call it under torch.no_grad() or torch.inference_mode().")


_library: Final[Any] = torch.library.Library("tensorhub", "DEF")  # type: ignore[no-untyped-call]  # torch does not annotate it
_library.define(
    "block_fp8_linear(Tensor x, Tensor weight, Tensor scale, Tensor? scale_rows, Tensor? bias, str compute, str grid) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.register_fake(NAME, fake_block_fp8_linear, lib=_library)
torch.library.register_autograd(NAME, _backward, lib=_library)
_library.impl("block_fp8_linear", block_fp8_linear_cuda, "CUDA")

#: The operator itself: `block_fp8_linear(x, weight, scale, scale_rows, bias, compute, grid)`.
block_fp8_linear: Final = torch.ops.tensorhub.block_fp8_linear.default

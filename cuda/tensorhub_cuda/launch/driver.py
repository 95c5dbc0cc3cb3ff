"""Launches kernels from pointers and plain numbers; no other module passes arguments to a kernel. No torch: the caller owns all memory.

The kernel is enqueued on the caller's stream of the device that the caller made current. Nothing is allocated on the device and
nothing waits for it, so that a CUDA graph can capture a launch whose kernels are loaded.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

from tensorhub_cuda.catalog import BLOCK, Kernel
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.loaded import kernel_for_launch, make_current
from tensorhub_cuda.launch.matrix_operands import MatrixOperands, operand_slices, row_slices

#: Driver errors of work that was enqueued earlier, or of a device that is broken: they say nothing of this kernel, and no
#: other kernel would do better. (Names as the driver gives them.)
_ERRORS_OF_EARLIER_WORK: Final = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "ECC_UNCORRECTABLE",
        "CONTEXT_IS_DESTROYED",
        "DEINITIALIZED",
    )
)


def launch_matrix(kernel: Kernel, operands: MatrixOperands, *, device_index: int, stream: int) -> None:
    """Enqueue a matrix kernel on a stream (its handle; 0 is the default stream); more than 65,535 tiles of rows in several launches.

    `m`, `n` and `k` are at least 1. Raises KernelUnavailable.
    """
    handle = kernel_for_launch(kernel, device_index, stream).handle
    blocks = -(-operands.n // kernel.tile_n)
    for part in operand_slices(operands, kernel):
        arguments = (
            *(part.weight, part.scale, part.scale_rows, part.x, part.x_scale, part.bias, part.y, part.weight_stride, part.x_stride),
            *(_int32(part.m), _int32(part.n), _int32(part.k)),
            *(_int32(part.scale_stride), _int32(part.scale_row_shift), _int32(part.scale_column_step)),
        )
        _enqueue(kernel, handle, (blocks, -(-part.m // kernel.tile_m)), arguments, device_index, stream)


def launch_quantize(
    kernel: Kernel, *, x: int, codes: int, x_scale: int, x_stride: int, m: int, k: int, device_index: int, stream: int
) -> None:
    """Enqueue the quantization of BF16 activations: codes `[m, k]` and x_scale `[m, ceil(k/128)]`, both contiguous.

    A thread block takes `tile_m` rows by `tile_n` columns of x. Raises as `launch_matrix` does.
    """
    handle = kernel_for_launch(kernel, device_index, stream).handle
    groups = -(-k // BLOCK)
    for begin, rows in row_slices(m, kernel):
        arguments = (x + begin * x_stride * 2, codes + begin * k, x_scale + begin * groups * 4, x_stride, _int32(rows), _int32(k))
        _enqueue(kernel, handle, (-(-k // kernel.tile_n), -(-rows // kernel.tile_m)), arguments, device_index, stream)


# ---- One launch -----------------------------------------------------------------------------------------------------------


def _enqueue(kernel: Kernel, handle: Any, grid: tuple[int, int], arguments: tuple[Any, ...], device_index: int, stream: int) -> None:
    launch = _core().launch
    configuration = _configuration(*grid, kernel.threads, kernel.shared_bytes)
    try:
        launch(_stream(device_index, stream), configuration, handle, *arguments)
    except Exception as error:  # cuda.core's CUDAError is not public
        if _error_name(error) != "CUDA_ERROR_INVALID_CONTEXT":
            raise _explained(error, kernel, grid, device_index, stream) from error
        # A thread that has not used the device yet has no current context: torch's guard does nothing where the device
        # number is right already, and an allocation that torch serves from its cache makes none current either.
        make_current(device_index)
        try:
            launch(_stream(device_index, stream), configuration, handle, *arguments)
        except Exception as again:
            raise _explained(again, kernel, grid, device_index, stream) from again


def _explained(error: Exception, kernel: Kernel, grid: tuple[int, int], device_index: int, stream: int) -> Exception:
    """Return what a failed launch raises: KernelUnavailable, or the error itself where it is not about this launch."""
    name = _error_name(error)
    launch = f"{grid[0]} x {grid[1]} blocks of {kernel.threads} threads and {kernel.shared_bytes} bytes of shared memory"
    where = f"{launch}, on stream {stream:#x} of CUDA device {device_index}"
    if not name or name in _ERRORS_OF_EARLIER_WORK:
        error.add_note(f"seen when {kernel.name} was launched: {where}")
        return error
    return KernelUnavailable("driver", kernel.name, f"a launch of {where}", str(error), "Run tensorhub doctor to see what the driver says.")


def _error_name(error: Exception) -> str:
    """Return the driver's name of an error, "CUDA_ERROR_INVALID_VALUE", or nothing for one that is not the driver's."""
    name = str(error).partition(":")[0]
    return name if name.startswith("CUDA_ERROR_") else ""


@lru_cache(maxsize=1)
def _core() -> Any:  # the package has no types of its own
    return importlib.import_module("cuda.core")


@lru_cache(maxsize=1024)
def _configuration(grid_x: int, grid_y: int, threads: int, shared_bytes: int) -> Any:
    return _core().LaunchConfig(grid=(grid_x, grid_y, 1), block=threads, shmem_size=shared_bytes)


@lru_cache(maxsize=256)
def _stream(device_index: int, handle: int) -> Any:
    """Return cuda.core's object for a stream: it holds the handle alone, so a handle that is used again is the new stream."""
    return _core().Stream.from_handle(handle)


@lru_cache(maxsize=4096)
def _int32(value: int) -> Any:
    """Return a parameter of 4 bytes: cuda.core passes a plain int as 8. Of what it takes, numpy's scalars cost the least."""
    import numpy  # it comes with cuda-core

    return numpy.int32(value)

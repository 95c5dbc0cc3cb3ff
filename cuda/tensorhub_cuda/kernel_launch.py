"""Launches kernels from pointers and plain numbers: the calling convention's only writer. No torch; the caller owns all memory.

The kernel is enqueued on the caller's stream of the device that the caller made current. Nothing is allocated on the
device and nothing waits, so that a CUDA graph can capture it once its kernels are prepared.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.kernel_catalog import Kernel
from tensorhub_cuda.kernel_choice import kernels_of
from tensorhub_cuda.modules import LoadedKernel, check_floor, device_sm, loaded_kernel

#: Activations that share one scale when they are quantized, along K.
GROUP: Final = 128

#: The most blocks of a grid along y, of every compute capability.
LARGEST_GRID_Y: Final = 65535

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


class MatrixOperands(msgspec.Struct, frozen=True):
    """The operands of one projection `y = x W^T + bias`: device pointers (0 for none), strides in elements, sizes.

    weight uint8 `[n, k]`, scale F32, scale_rows int32 `[n]`, x `[m, k]` (codes for w8a8, then x_scale F32
    `[m, ceil(k/128)]`), bias `[n]` and y `[m, n]` contiguous. The scale of (row, column) is
    `scale[(scale_rows[row] or row >> scale_row_shift) * scale_stride + column // 128 * scale_column_step]`.
    """

    weight: int
    scale: int
    scale_rows: int
    x: int
    x_scale: int
    bias: int
    y: int
    weight_stride: int
    x_stride: int
    m: int
    n: int
    k: int
    scale_stride: int
    scale_row_shift: int
    scale_column_step: int


def launch_matrix(kernel: Kernel, operands: MatrixOperands, *, device_index: int, stream: int) -> None:
    """Enqueue a matrix kernel on a stream (its handle; 0 is the default stream); more than 65,535 tiles of rows in several launches.

    `m`, `n` and `k` are at least 1. Raises KernelUnavailable.
    """
    handle = _ready(kernel, device_index, stream).handle
    blocks = -(-operands.n // kernel.tile_n)
    parts = (operands,) if operands.m <= kernel.tile_m * LARGEST_GRID_Y else _slices(operands, kernel)
    for part in parts:
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
    handle = _ready(kernel, device_index, stream).handle
    groups = -(-k // GROUP)
    for begin, rows in _row_slices(m, kernel):
        arguments = (x + begin * x_stride * 2, codes + begin * k, x_scale + begin * groups * 4, x_stride, _int32(rows), _int32(k))
        _enqueue(kernel, handle, (-(-k // kernel.tile_n), -(-rows // kernel.tile_m)), arguments, device_index, stream)


def prepare_kernels(device_index: int, computes: Iterable[str]) -> tuple[LoadedKernel, ...]:
    """Compile and load every kernel of some computes: afterwards a launch compiles, loads and sets nothing.

    Raises KernelUnavailable, before anything is compiled if a floor decides, and ValueError for a compute that there is not.
    """
    wanted = [kernel for compute in computes for kernel in kernels_of(compute)]
    sm = device_sm(device_index)
    for kernel in wanted:
        check_floor(kernel, sm)
    return tuple(_load(kernel, device_index) for kernel in wanted)


# ---- Kernels that are ready -----------------------------------------------------------------------------------------------

_ready_kernels: Final[dict[tuple[str, int], LoadedKernel]] = {}


def _ready(kernel: Kernel, device_index: int, stream: int) -> LoadedKernel:
    """Return a kernel that is loaded, or load it; not while the stream is being captured, which loading would break."""
    found = _ready_kernels.get((kernel.name, device_index))
    if found is None:
        if _is_capturing(stream, device_index):
            raise KernelUnavailable(
                "driver",
                kernel.name,
                "a kernel that is loaded before a CUDA graph is captured",
                f"a first launch inside the capture, on CUDA device {device_index}",
                "Call tensorhub_cuda.launching.prepare(device, computes) before the capture.",
            )
        found = _load(kernel, device_index)
    return found


def _load(kernel: Kernel, device_index: int) -> LoadedKernel:
    loaded = loaded_kernel(kernel, device_index)
    _put_on_device(loaded, device_index)
    _ready_kernels[kernel.name, device_index] = loaded
    return loaded


def _put_on_device(loaded: LoadedKernel, device_index: int) -> None:
    """Have the driver load the code now: it would at the first launch, which the capture of a graph does not bear."""
    driver = importlib.import_module("cuda.bindings.driver")
    result, function = driver.cuKernelGetFunction(loaded.handle.handle)
    if result == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
        _make_current(device_index)
        result, function = driver.cuKernelGetFunction(loaded.handle.handle)
    if int(result) == 0:
        try:
            (result,) = driver.cuFuncLoad(function)
        except RuntimeError:  # a driver before CUDA 12.4 has no such function, and loads at the first launch
            return
    if int(result) != 0:
        remedy = "Run tensorhub doctor to see what the driver says."
        raise KernelUnavailable("driver", loaded.kernel.name, f"code that CUDA device {device_index} loads", str(result), remedy)


def _is_capturing(stream: int, device_index: int) -> bool:
    """Return whether a stream records into a graph, or is a default stream beside one that does."""
    device_sm(device_index)  # says by name that there is no driver, no package or no such device
    driver = importlib.import_module("cuda.bindings.driver")
    result, status = driver.cuStreamIsCapturing(stream)
    return result == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT or int(status) != 0


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
        _make_current(device_index)
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


def _make_current(device_index: int) -> None:
    _core().Device(device_index).set_current()


# ---- Slices of rows -------------------------------------------------------------------------------------------------------

#: Bytes of an element of x and of y.
_ITEM_BYTES: Final = {"w8a16": (2, 2), "w8a32": (4, 4), "w8a8": (1, 2)}


def _row_slices(m: int, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield the first row and the number of rows of each launch."""
    step = kernel.tile_m * LARGEST_GRID_Y
    yield from ((begin, min(step, m - begin)) for begin in range(0, m, step))


def _slices(operands: MatrixOperands, kernel: Kernel) -> Iterator[MatrixOperands]:
    x_bytes, y_bytes = _ITEM_BYTES[kernel.compute]
    groups = -(-operands.k // GROUP)
    for begin, rows in _row_slices(operands.m, kernel):
        yield msgspec.structs.replace(
            operands,
            x=operands.x + begin * operands.x_stride * x_bytes,
            x_scale=operands.x_scale + begin * groups * 4 if operands.x_scale else 0,
            y=operands.y + begin * operands.n * y_bytes,
            m=rows,
        )

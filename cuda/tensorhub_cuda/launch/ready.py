"""The kernels that are loaded on each device, and loading them ahead of the first launch, as the capture of a CUDA graph needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Final

from tensorhub_cuda.catalog import Kernel, check_floor
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import kernels_of
from tensorhub_cuda.launch.loaded import LoadedKernel, device_sm, loaded_kernel

#: By name and number of the device.
READY_KERNELS: Final[dict[tuple[str, int], LoadedKernel]] = {}


def prepare_kernels(device_index: int, computes: Iterable[str]) -> tuple[LoadedKernel, ...]:
    """Compile and load every kernel of some computes: afterwards a launch compiles, loads and sets nothing.

    Raises KernelUnavailable, before anything is compiled if a floor decides, and ValueError for a compute that there is not.
    """
    wanted = [kernel for compute in computes for kernel in kernels_of(compute)]
    sm = device_sm(device_index)
    for kernel in wanted:
        check_floor(kernel, sm)
    return tuple(_load(kernel, device_index) for kernel in wanted)


def ready_kernel(kernel: Kernel, device_index: int, stream: int) -> LoadedKernel:
    """Return a kernel that is loaded, or load it; not while the stream is being captured, which loading would break."""
    found = READY_KERNELS.get((kernel.name, device_index))
    if found is None:
        if _is_capturing(stream, device_index):
            raise KernelUnavailable(
                "driver",
                kernel.name,
                "a kernel that is loaded before a CUDA graph is captured",
                f"a first launch inside the capture, on CUDA device {device_index}",
                "Call tensorhub_cuda.launch.torch_op.prepare(device, computes) before the capture.",
            )
        found = _load(kernel, device_index)
    return found


def _load(kernel: Kernel, device_index: int) -> LoadedKernel:
    loaded = loaded_kernel(kernel, device_index)
    _put_on_device(loaded, device_index)
    READY_KERNELS[kernel.name, device_index] = loaded
    return loaded


def _put_on_device(loaded: LoadedKernel, device_index: int) -> None:
    """Have the driver load the code now: it would at the first launch, which the capture of a graph does not bear."""
    driver = importlib.import_module("cuda.bindings.driver")
    result, function = driver.cuKernelGetFunction(loaded.handle.handle)
    if result == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
        make_current(device_index)
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


def make_current(device_index: int) -> None:
    """Make the primary context of a device current in this thread."""
    importlib.import_module("cuda.core").Device(device_index).set_current()

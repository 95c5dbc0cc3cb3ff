"""The kernels that are loaded on each device, and loading them ahead of the first launch, as the capture of a CUDA graph needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final

import attrs

from tensorhub_cuda.catalog import Kernel, check_floor, read_source
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import kernels_of
from tensorhub_cuda.nvrtc.cache import FoundCubin, Origin, find_cubin
from tensorhub_cuda.nvrtc.compile import package_missing


@attrs.frozen
class LoadedKernel:
    """A kernel on one device, ready to launch, and its provenance.

    `handle` is for cuda.core.launch. `path` is the file of the cubin, or empty with `not_kept` saying why there is none;
    `digest` is "sha256:" and the digest of the cubin; `nvrtc_version` is that of the NVRTC that made it.
    """

    kernel: Kernel
    device_index: int
    sm: int
    handle: Any  # cuda.core.Kernel, from a package that may not be there
    origin: Origin
    path: str
    digest: str
    nvrtc_version: str
    not_kept: str = ""


#: Every kernel that is loaded, by name and number of the device: the one cache.
LOADED: Final[dict[tuple[str, int], LoadedKernel]] = {}
_loading: Final = Lock()


def loaded_kernel(kernel: Kernel, device_index: int) -> LoadedKernel:
    """Return a kernel whose code is on a device; the first call for the pair compiles and loads, later ones look it up.

    Raises KernelUnavailable, decided by the minimum compute capability, the package, the driver, NVRTC, or TENSORHUB_DISABLE_JIT.
    """
    key = (kernel.name, device_index)
    found = LOADED.get(key)
    if found is None:
        with _loading:  # threads that ask at once compile once
            found = LOADED.get(key)
            if found is None:
                found = _load(kernel, device_index)
                _put_on_device(found, device_index)
                LOADED[key] = found
    return found


def prepare_kernels(device_index: int, computes: Iterable[str]) -> tuple[LoadedKernel, ...]:
    """Compile and load every kernel of some computes: afterwards a launch compiles, loads and sets nothing.

    Raises KernelUnavailable, before anything is compiled if a minimum compute capability decides, and ValueError for the
    name of a compute that no kernel has.
    """
    wanted = [kernel for compute in computes for kernel in kernels_of(compute)]
    sm = device_sm(device_index)
    for kernel in wanted:
        check_floor(kernel, sm)
    return tuple(loaded_kernel(kernel, device_index) for kernel in wanted)


def ready_kernel(kernel: Kernel, device_index: int, stream: int) -> LoadedKernel:
    """Return a kernel that is loaded, or load it; not while the stream is being captured, which loading would break."""
    found = LOADED.get((kernel.name, device_index))
    if found is None and _is_capturing(stream, device_index):
        raise KernelUnavailable(
            "driver",
            kernel.name,
            "a kernel that is loaded before a CUDA graph is captured",
            f"a first launch inside the capture, on CUDA device {device_index}",
            "Call tensorhub_cuda.launch.torch_op.prepare(device, computes) before the capture.",
        )
    return found or loaded_kernel(kernel, device_index)


def device_sm(device_index: int) -> int:
    """Return the compute capability of a device as a number: 90 for 9.0. Raises KernelUnavailable (package, driver)."""
    major, minor = _device(device_index).compute_capability
    return int(major) * 10 + int(minor)


def _load(kernel: Kernel, device_index: int) -> LoadedKernel:
    sm = device_sm(device_index)
    check_floor(kernel, sm)
    cubin = find_cubin(read_source(kernel), sm)
    handle = _kernel_of(cubin, kernel)
    _allow_dynamic_shared_memory(handle, kernel, device_index)
    return LoadedKernel(kernel, device_index, sm, handle, cubin.origin, cubin.path, cubin.digest, cubin.nvrtc_version, cubin.not_kept)


def _device(device_index: int) -> Any:
    """Return a cuda.core.Device, which makes nothing current."""
    try:
        cuda_core = importlib.import_module("cuda.core")
    except ImportError as error:
        raise package_missing("cuda-core", error) from error
    try:
        return cuda_core.Device(device_index)
    except Exception as error:  # no driver, no device, no such device: the driver's errors and the loader's share no class
        remedy = "Run tensorhub doctor to see what the driver says."
        raise KernelUnavailable("driver", f"CUDA device {device_index}", "a device of this machine", str(error), remedy) from error


def _kernel_of(cubin: FoundCubin, kernel: Kernel) -> Any:
    cuda_core = importlib.import_module("cuda.core")
    try:
        return cuda_core.ObjectCode.from_cubin(cubin.code, name=kernel.name).get_kernel(kernel.name)
    except Exception as error:  # cuda.core's CUDAError is not public
        made = f"the cubin {cubin.path or cubin.digest} for {cubin.architecture}, made by NVRTC {cubin.nvrtc_version}"
        remedy = "A driver older than NVRTC's CUDA cannot load what it makes: run tensorhub doctor, and upgrade the driver."
        raise KernelUnavailable("driver", kernel.name, f"a driver that loads {made}", str(error), remedy) from error


def _allow_dynamic_shared_memory(handle: Any, kernel: Kernel, device_index: int) -> None:
    """Raise the kernel's limit of dynamic shared memory on a device, once: launches then set nothing."""
    if not kernel.shared_bytes:
        return
    driver = importlib.import_module("cuda.bindings.driver")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    status, device = driver.cuDeviceGet(device_index)
    if int(status) == 0:
        (status,) = driver.cuKernelSetAttribute(attribute, kernel.shared_bytes, handle.handle, device)
    if int(status) != 0:
        raise KernelUnavailable(
            "driver",
            kernel.name,
            f"{kernel.shared_bytes} bytes of shared memory for a block on CUDA device {device_index}",
            str(status),
            "Choose a lane whose kernel needs less.",
        )


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

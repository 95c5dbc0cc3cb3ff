"""Loads a kernel onto a device: its cubin from the cache or the compiler, its symbol, and its limit of dynamic shared memory.

Loading is context-independent (cuLibraryLoadData) and changes no thread's current device or context, which are torch's.
"""

from __future__ import annotations

import importlib
from threading import Lock
from typing import Any, Final

import attrs

from tensorhub_cuda.catalog import Kernel, check_floor, read_source
from tensorhub_cuda.errors import KernelUnavailable
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


_loaded: Final[dict[tuple[int, str], LoadedKernel]] = {}
_loading: Final = Lock()


def loaded_kernel(kernel: Kernel, device_index: int) -> LoadedKernel:
    """Return a kernel on a device; the first call for the pair compiles and loads, later ones look it up.

    Raises KernelUnavailable, decided by the floor, the package, the driver, NVRTC, or TENSORHUB_DISABLE_JIT.
    """
    key = (device_index, kernel.name)
    found = _loaded.get(key)
    if found is None:
        with _loading:  # threads that ask at once compile once
            found = _loaded.get(key)
            if found is None:
                found = _loaded[key] = _load(kernel, device_index)
    return found


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

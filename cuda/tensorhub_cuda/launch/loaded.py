"""The kernels that are loaded on each device: found again at each launch, and loaded ahead of it for the capture of a CUDA graph.

To load a kernel is to find its cubin in the cache or compile it, hand it to the driver, raise the kernel's limit of dynamic shared
memory, and have the driver put the code on the device: a launch then compiles, loads and sets nothing. The current device and
context of a thread are torch's, and stay as they are: only a thread without a context gets the device's primary one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Final

import attrs

from tensorhub_cuda.catalog import Kernel, read_source, require_supported
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import kernels_of
from tensorhub_cuda.nvrtc.cache import FoundCubin, Origin, find_cubin
from tensorhub_cuda.nvrtc.compile import package_missing

_ASK_DOCTOR: Final = "Run tensorhub doctor to see what the driver says."


@attrs.frozen
class LoadedKernel:
    """A kernel on one device, ready to launch, and its provenance."""

    #: The kernel, as the catalog describes it.
    kernel: Kernel
    #: The number of the device.
    device_index: int
    #: The device's compute capability, 90 for 9.0.
    sm: int
    #: What cuda.core.launch takes: a cuda.core.Kernel, of a package that may not be installed.
    handle: Any
    #: Whether the cubin was compiled now or read from a file, and which kind of file.
    origin: Origin
    #: The cubin's file; empty if there is none.
    path: str
    #: "sha256:" and the digest of the cubin.
    digest: str
    #: The NVRTC that made the cubin, as "13.5".
    nvrtc_version: str
    #: Why the cubin has no file; empty if it has one.
    not_kept: str = ""


#: By the kernel's name and the number of the device.
LOADED_KERNELS: Final[dict[tuple[str, int], LoadedKernel]] = {}

#: Held while kernels are loaded: threads that ask for one at once compile it once.
_loading: Final = Lock()


def loaded_kernel(kernel: Kernel, device_index: int) -> LoadedKernel:
    """Return a kernel on a device; the first call for the two loads it.

    Raises KernelUnavailable (floor, package, driver, nvrtc, disabled).
    """
    found = LOADED_KERNELS.get((kernel.name, device_index))
    return found or _load([kernel], device_index)[0]


def kernel_for_launch(kernel: Kernel, device_index: int, stream: int) -> LoadedKernel:
    """Return a kernel on a device, for a launch on a stream (its handle).

    Raises as `loaded_kernel` does, and KernelUnavailable (driver) if it is not loaded and the stream records into a CUDA graph:
    loading would break the capture.
    """
    found = LOADED_KERNELS.get((kernel.name, device_index))
    if found is None and _is_capturing(stream, device_index):
        raise KernelUnavailable(
            "driver",
            kernel.name,
            "a kernel that is loaded before a CUDA graph is captured",
            f"a first launch inside the capture, on CUDA device {device_index}",
            "Call tensorhub_cuda.launch.torch_op.prepare(device, computes) before the capture.",
        )
    return found or loaded_kernel(kernel, device_index)


def prepare_kernels(device_index: int, computes: Iterable[str]) -> tuple[LoadedKernel, ...]:
    """Load every kernel of some computes on a device and return them; afterwards their launches compile, load and set nothing.

    Raises as `loaded_kernel` does, for an unsupported device before anything is compiled, and ValueError for an unknown compute.
    """
    return _load([kernel for compute in computes for kernel in kernels_of(compute)], device_index)


def device_sm(device_index: int) -> int:
    """Return the compute capability of a device as a number: 90 for 9.0. Raises KernelUnavailable (package, driver)."""
    major, minor = _device(device_index).compute_capability
    return int(major) * 10 + int(minor)


def make_current(device_index: int) -> None:
    """Make the primary context of a device current in this thread."""
    importlib.import_module("cuda.core").Device(device_index).set_current()


def _load(kernels: Sequence[Kernel], device_index: int) -> tuple[LoadedKernel, ...]:
    """Load those kernels that are not yet, after all of them were found to be supported."""
    with _loading:
        sm = device_sm(device_index)
        for kernel in kernels:
            require_supported(kernel, sm)
        for kernel in kernels:
            if (kernel.name, device_index) not in LOADED_KERNELS:
                LOADED_KERNELS[kernel.name, device_index] = _load_one(kernel, device_index, sm)
        return tuple(LOADED_KERNELS[kernel.name, device_index] for kernel in kernels)


def _load_one(kernel: Kernel, device_index: int, sm: int) -> LoadedKernel:
    cubin = find_cubin(read_source(kernel), sm)
    handle = _handle_of(cubin, kernel)
    _allow_dynamic_shared_memory(handle, kernel, device_index)
    _put_on_device(handle, kernel, device_index)
    return LoadedKernel(kernel, device_index, sm, handle, cubin.origin, cubin.path, cubin.digest, cubin.nvrtc_version, cubin.not_kept)


# ---- What the driver is asked. --------------------------------------------------------------------------------------------


def _device(device_index: int) -> Any:
    """Return a cuda.core.Device, which makes nothing current."""
    try:
        cuda_core = importlib.import_module("cuda.core")
    except ImportError as error:
        raise package_missing("cuda-core", error) from error
    try:
        return cuda_core.Device(device_index)
    except Exception as error:  # no driver, no device, no such device: the driver's errors and the loader's share no class
        raise KernelUnavailable("driver", f"CUDA device {device_index}", "a device of this machine", str(error), _ASK_DOCTOR) from error


def _handle_of(cubin: FoundCubin, kernel: Kernel) -> Any:
    cuda_core = importlib.import_module("cuda.core")
    try:
        return cuda_core.ObjectCode.from_cubin(cubin.code, name=kernel.name).get_kernel(kernel.name)
    except Exception as error:  # cuda.core's CUDAError is not public
        made = f"the cubin {cubin.path or cubin.digest} for {cubin.architecture}, made by NVRTC {cubin.nvrtc_version}"
        remedy = "A driver older than NVRTC's CUDA cannot load what it makes: run tensorhub doctor, and upgrade the driver."
        raise KernelUnavailable("driver", kernel.name, f"a driver that loads {made}", str(error), remedy) from error


def _allow_dynamic_shared_memory(handle: Any, kernel: Kernel, device_index: int) -> None:
    """Raise the kernel's limit of dynamic shared memory on a device."""
    if not kernel.shared_bytes:
        return
    driver = importlib.import_module("cuda.bindings.driver")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    status, device = driver.cuDeviceGet(device_index)
    if int(status) == 0:
        (status,) = driver.cuKernelSetAttribute(attribute, kernel.shared_bytes, handle.handle, device)
    if int(status) != 0:
        expected = f"{kernel.shared_bytes} bytes of shared memory for a block on CUDA device {device_index}"
        raise KernelUnavailable("driver", kernel.name, expected, str(status), "Choose a lane whose kernel needs less.")


def _put_on_device(handle: Any, kernel: Kernel, device_index: int) -> None:
    """Have the driver load the code now: it would at the first launch, which the capture of a graph does not allow."""
    driver = importlib.import_module("cuda.bindings.driver")
    status, function = driver.cuKernelGetFunction(handle.handle)
    if status == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
        make_current(device_index)
        status, function = driver.cuKernelGetFunction(handle.handle)
    if int(status) == 0:
        try:
            (status,) = driver.cuFuncLoad(function)
        except RuntimeError:  # a driver before CUDA 12.4 has no such function, and loads at the first launch
            return
    if int(status) != 0:
        raise KernelUnavailable("driver", kernel.name, f"code that CUDA device {device_index} loads", str(status), _ASK_DOCTOR)


def _is_capturing(stream: int, device_index: int) -> bool:
    """Return whether a stream records into a graph, or is a default stream beside one that does."""
    device_sm(device_index)  # raises by name if there is no driver, no package or no such device
    driver = importlib.import_module("cuda.bindings.driver")
    result, status = driver.cuStreamIsCapturing(stream)
    return result == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT or int(status) != 0

"""Finds out what kernels are compiled with and run on here: `find_environment()`, for `tensorhub doctor`.

It asks the driver and NVRTC, and works without either, without torch and without NVIDIA's packages. torch is not imported: its
version file is read.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tensorhub_cuda.catalog import KERNELS, Kernel, read_source, unsupported_reason
from tensorhub_cuda.environment.facts import Driver, EnvironmentFacts, GpuDevice, KernelAvailability, Module, Nvrtc, NvrtcPackage, Torch
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc.cache import DISABLE_JIT, cubin_is_kept, jit_disabled
from tensorhub_cuda.nvrtc.cache_folder import cache_state
from tensorhub_cuda.nvrtc.compile import check_that_it_compiles, nvrtc_version, supported_architectures

#: Modules whose files the doctor names, with their distributions.
_MODULES: Final = {
    "tensorhub_cuda": "tensorhub-contracts",
    "torch": "torch",
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
    "cuda.pathfinder": "cuda-pathfinder",
}

_NVRTC_PACKAGE: Final = re.compile(r"nvidia-cuda-nvrtc(-cu\d+)?")

_DRIVER_VERSION: Final = re.compile(r"\b\d{3}\.\d+(\.\d+)?\b")


class _NoAnswer(Exception):
    """The driver is there, and answers with an error."""


def find_environment() -> EnvironmentFacts:
    """Return the facts of this environment. Raises nothing: what is missing is a fact."""
    nvrtc, torch = _find_nvrtc(), _find_torch()
    return EnvironmentFacts(
        driver=_find_driver(nvrtc, _missing_for_launches(torch)),
        nvrtc=nvrtc,
        torch=torch,
        modules=tuple(_find_module(name, distribution) for name, distribution in _MODULES.items()),
        cache=cache_state(),
        jit_disabled=jit_disabled(),
        shadowed_by=_file_that_hides_cuda(),
    )


def kernel_availability(kernel: Kernel, sm: int, nvrtc: Nvrtc, missing: tuple[str, ...]) -> KernelAvailability:
    """Return whether a kernel runs on devices of a compute capability, and if not, why.

    `missing` has a phrase for each thing that launches need and that is not there, as "torch is not installed".
    """
    reason = unsupported_reason(kernel, sm)
    if reason:
        return KernelAvailability(kernel.name, False, "floor", reason)
    if missing:
        return KernelAvailability(kernel.name, False, "package", " and ".join(missing))
    if (sm in nvrtc.architectures and not jit_disabled()) or cubin_is_kept(read_source(kernel), sm):
        return KernelAvailability(kernel.name, True)
    if jit_disabled():
        reason = f"{DISABLE_JIT} is set, and no file holds it: run tensorhub kernels build"
        return KernelAvailability(kernel.name, False, "disabled", reason)
    reason = nvrtc.reason or f"NVRTC {nvrtc.version} does not know sm_{sm}"
    return KernelAvailability(kernel.name, False, nvrtc.decided_by or "nvrtc", reason)


def _missing_for_launches(torch: Torch) -> tuple[str, ...]:
    """Return a phrase for each thing that launches need and that is not there."""
    missing = [] if _module_spec("cuda.core") else ["cuda-core is not installed"]
    if not torch.cuda:
        missing.append(f"torch {torch.version} is built without CUDA" if torch.version else "torch is not installed")
    return tuple(missing)


def _find_nvrtc() -> Nvrtc:
    packages = tuple(_installed_nvrtc_packages())
    try:
        check_that_it_compiles()
        return Nvrtc(nvrtc_version(), _library_file("nvrtc"), supported_architectures(), packages)
    except KernelUnavailable as unavailable:
        return Nvrtc("", "", (), packages, unavailable.decided_by, str(unavailable))


def _installed_nvrtc_packages() -> Iterator[NvrtcPackage]:
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower().replace("_", "-")
        if _NVRTC_PACKAGE.fullmatch(name):
            yield NvrtcPackage(name, distribution.version)


def _library_file(name: str) -> str:
    """Return the file of one of NVIDIA's libraries as cuda-pathfinder, which loads them, finds it; empty if it does not."""
    try:
        return str(importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name).abs_path or "")
    except (ImportError, RuntimeError):  # the finder's own error is a RuntimeError
        return ""


def _find_driver(nvrtc: Nvrtc, missing: tuple[str, ...]) -> Driver:
    version = _driver_version()
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        return Driver(version, "", f"the driver was not asked, as cuda-bindings is missing: {error}", ())
    try:
        initialised = driver.cuInit(0)
    except RuntimeError as error:  # cuda-pathfinder's: the library is not there
        return Driver(version, "", f"no NVIDIA driver: CUDA lanes do not run here ({error})", ())
    try:
        _value_of(initialised)
        cuda = _value_of(driver.cuDriverGetVersion())
        devices = tuple(_find_device(driver, index, nvrtc, missing) for index in range(_value_of(driver.cuDeviceGetCount())))
    except _NoAnswer as error:
        return Driver(version, "", f"the NVIDIA driver answers {error}: CUDA lanes do not run here", ())
    return Driver(version, f"{cuda // 1000}.{cuda % 1000 // 10}", "", devices)


def _driver_version() -> str:
    """Return the version of the driver's kernel module, as "580.65.06"; empty where there is none, or no /proc."""
    try:
        found = _DRIVER_VERSION.search(Path("/proc/driver/nvidia/version").read_text("utf-8"))
    except OSError:
        return ""
    return found[0] if found else ""


def _find_device(driver: Any, index: int, nvrtc: Nvrtc, missing: tuple[str, ...]) -> GpuDevice:
    device = _value_of(driver.cuDeviceGet(index))
    of = driver.CUdevice_attribute
    major = _value_of(driver.cuDeviceGetAttribute(of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = _value_of(driver.cuDeviceGetAttribute(of.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    name = _value_of(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode(errors="replace")
    sm = int(major) * 10 + int(minor)
    return GpuDevice(index, name, sm, tuple(kernel_availability(each, sm, nvrtc, missing) for each in KERNELS))


def _value_of(answer: tuple[Any, ...]) -> Any:
    """Return what the driver answered beside its status; raises _NoAnswer with the status if that is not success."""
    status, *values = answer
    if int(status) != 0:
        raise _NoAnswer(status.name)
    return values[0] if values else None


def _find_torch() -> Torch:
    """Return what torch/version.py says, without running it: importing torch takes seconds, and may itself be what is broken."""
    spec = _module_spec("torch")
    if spec is None or not spec.origin:
        return Torch("", "")
    try:
        statements = ast.parse(Path(spec.origin).with_name("version.py").read_text("utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return Torch(_distribution_version("torch"), "")
    said: dict[str, str] = {}
    for statement in statements:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value)))
            ):
                said[name] = value
    return Torch(said.get("__version__", ""), said.get("cuda", ""))


def _find_module(name: str, distribution: str) -> Module:
    spec = _module_spec(name)
    return Module(name, _distribution_version(distribution), spec.origin or "") if spec else Module(name, "", "")


def _file_that_hides_cuda() -> str:
    """Return the file of a package `cuda` that is no namespace package, or empty."""
    spec = _module_spec("cuda")
    return spec.origin or "" if spec else ""


def _module_spec(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):  # a parent that is missing, or has no spec
        return None


def _distribution_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""

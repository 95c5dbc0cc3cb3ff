"""Compiles CUDA source to a cubin for one exact architecture, with NVRTC alone: no driver, no GPU, no CUDA toolkit.

A cubin, not PTX: PTX of a newer compiler does not load on an older driver. cuda.bindings.nvrtc, not cuda.core: it returns the
log when compiling succeeds and when it fails, and an image that only builds kernels needs nothing else.
"""

from __future__ import annotations

import importlib
import re
import sys
from functools import lru_cache
from typing import Any, Final

import attrs

from tensorhub_cuda.errors import KernelBuildError, KernelUnavailable

_REST_OF_KERNEL: Final = r"(?:(?!Compiling entry function).)*?"  # never into what is said of the next one
_KERNEL: Final = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for '\w+'"
    + _REST_OF_KERNEL
    + r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    + _REST_OF_KERNEL
    + r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@attrs.frozen
class KernelResources:
    """What one thread of a kernel takes: registers, and bytes of local memory, which are all 0 in a good kernel."""

    #: Registers of a thread.
    registers: int
    #: Bytes of its stack frame.
    stack_bytes: int
    #: Bytes that it writes because registers are short.
    spill_store_bytes: int
    #: Bytes that it reads for the same reason.
    spill_load_bytes: int


def kernel_resources(log: str) -> dict[str, KernelResources]:
    """Return the resources of each kernel that the log tells of, by the kernel's symbol."""
    return {
        found["kernel"]: KernelResources(int(found["registers"]), int(found["stack"]), int(found["stores"]), int(found["loads"]))
        for found in _KERNEL.finditer(log)
    }


#: The first NVRTC that knows all architectures that the kernels are written for, sm_100 and sm_120 among them.
OLDEST_NVRTC: Final = (12, 8)

#: How to install everything that compiling needs.
INSTALL_REMEDY: Final = "Run pip install 'tensorhub-contracts[cu13]', or [cu12] where torch is built for CUDA 12."

#: Options of every kernel, but the architecture. Fast math is off, and each of its parts is stated. The compiler
#: contracts nothing either (fmad): kernels write fma where they mean it, so that a CPU that runs the same source, and a
#: later compiler, round as the GPU does. -v puts registers, spills and stack frames into the log.
OPTIONS: Final = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v")

_UNIT_NAME: Final = b"tensorhub_kernel.cu"


@attrs.frozen
class Cubin:
    """Machine code for one architecture, and how it was made."""

    #: The ELF bytes.
    code: bytes
    #: What it was compiled for, as "sm_90a".
    architecture: str
    #: All options of NVRTC.
    options: tuple[str, ...]
    #: What NVRTC and ptxas wrote: registers, spills and stack frames.
    log: str
    #: The NVRTC that made it, as "13.5".
    nvrtc_version: str


def architecture_name(sm: int) -> str:
    """Return the exact target for a compute capability given as a number: 89 gives "sm_89", 90 gives "sm_90a".

    From 9.0 on the exact targets have an a: they may use what no later device has, such as the tensor cores' newest instructions.
    """
    return f"sm_{sm}a" if sm >= 90 else f"sm_{sm}"


def options_for(sm: int) -> tuple[str, ...]:
    """Return all options that a kernel is compiled with for a compute capability."""
    return (f"--gpu-architecture={architecture_name(sm)}", *OPTIONS)


def nvrtc_version() -> str:
    """Return the version of the NVRTC that compiles here, as "13.5"; raises KernelUnavailable if none does."""
    return ".".join(map(str, _version()))


@lru_cache(maxsize=1)
def supported_architectures() -> tuple[int, ...]:
    """Return the compute capabilities that this NVRTC compiles for, ascending: 75, 80, ...; raises KernelUnavailable."""
    _version()
    nvrtc = _bindings()
    return tuple(sorted(_checked(nvrtc.nvrtcGetSupportedArchs(), "list of architectures")))


def compile_cubin(source: str, sm: int) -> Cubin:
    """Compile a source that includes nothing to a cubin for one compute capability, such as 90.

    Raises KernelBuildError, with all options and the whole log, if NVRTC refuses the source or does not know the architecture,
    and KernelUnavailable if cuda-bindings or NVRTC is missing or too old.
    """
    options = options_for(sm)
    version = nvrtc_version()
    if sm not in supported_architectures():
        known = ", ".join(map(str, supported_architectures()))
        raise KernelBuildError(
            architecture_name(sm),
            f"one of the compute capabilities that NVRTC {version} compiles for: {known}",
            str(sm),
            "An older device is not served; a newer one needs a newer NVRTC: upgrade the package that holds it.",
            options=options,
            log="nothing was compiled",
        )
    nvrtc = _bindings()
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), _UNIT_NAME, 0, None, None), "program")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [each.encode() for each in options])
        log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise KernelBuildError(
                architecture_name(sm),
                f"a source that NVRTC {version} compiles",
                status.name,
                "Report it with the options and the log: the kernels of a release compile with every supported NVRTC.",
                options=options,
                log=log,
            )
        code = _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(code, architecture_name(sm), options, log, version)


def check_that_it_compiles() -> None:
    """Raise KernelUnavailable unless NVRTC compiles a kernel that does nothing: its library of built-ins may be missing, or another's."""
    compile_cubin('extern "C" __global__ void nothing() {}', supported_architectures()[-1])


def check_nvrtc_version(version: tuple[int, int]) -> None:
    """Raise KernelUnavailable for an NVRTC that is older than the kernels need."""
    if version < OLDEST_NVRTC:
        wanted, found = (".".join(map(str, each)) for each in (OLDEST_NVRTC, version))
        raise KernelUnavailable("nvrtc", "NVRTC", f"version {wanted} or later", found, f"Upgrade it. {INSTALL_REMEDY}")


@lru_cache(maxsize=1)
def _version() -> tuple[int, int]:
    major, minor = _checked(_bindings().nvrtcVersion(), "version")
    check_nvrtc_version((major, minor))
    return major, minor


def package_missing(package: str, error: ImportError) -> KernelUnavailable:
    """Return the error for a package that cannot be imported; a file that hides NVIDIA's namespace `cuda` is named."""
    hiding = getattr(sys.modules.get("cuda"), "__file__", None)
    found = f"{error}; `cuda` is {hiding}, which hides NVIDIA's" if hiding else str(error)
    remedy = f"Rename {hiding}, or run elsewhere." if hiding else INSTALL_REMEDY
    return KernelUnavailable("package", package, "an installed package", found, remedy)


@lru_cache(maxsize=1)
def _bindings() -> Any:  # the module has no types of its own
    """Return cuda.bindings.nvrtc, with the library behind it loaded."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise package_missing("cuda-bindings", error) from error
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda-pathfinder's, which says where it looked
        raise KernelUnavailable("nvrtc", "NVRTC", "a library that can be loaded", str(error), INSTALL_REMEDY) from error
    return nvrtc


def _read(program: Any, size_of: Any, read_into: Any) -> bytes:
    """Return what NVRTC has to give of a program: it tells the size, and fills a buffer of that size."""
    buffer = bytearray(_checked(size_of(program), "size"))
    _checked(read_into(program, buffer), "bytes")
    return bytes(buffer)


def _checked(result: tuple[Any, ...], what: str) -> Any:
    """Return what a call of NVRTC returned beside its status; raises KernelUnavailable for a status that is not success."""
    status, *values = result
    if int(status) != 0:
        raise KernelUnavailable("nvrtc", "NVRTC", f"a {what}", str(status), "Reinstall the package that holds NVRTC.")
    return values[0] if len(values) == 1 else tuple(values)

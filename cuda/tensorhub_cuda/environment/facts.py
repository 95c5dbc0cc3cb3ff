"""The facts of an environment that `tensorhub doctor` shows, and the contradictions between them. Asks nothing of the machine."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tensorhub_cuda.errors import DecidedBy
from tensorhub_cuda.nvrtc.cache_folder import CacheState


@attrs.frozen
class Module:
    """A Python module that kernels need, or that is ours."""

    #: Its name, as "cuda.core".
    name: str
    #: The version of its distribution; empty if it is missing.
    version: str
    #: The file that it is imported from; empty if it is missing.
    file: str


@attrs.frozen
class NvrtcPackage:
    """An installed distribution that holds NVRTC for one CUDA major."""

    #: Its name, as "nvidia-cuda-nvrtc".
    name: str
    #: Its version, as "13.0.88".
    version: str


@attrs.frozen
class Nvrtc:
    """The compiler, or why none compiles here."""

    #: Its version, as "13.5"; empty if none compiles.
    version: str
    #: The library's file; empty if it is not known.
    library: str
    #: The compute capabilities that it compiles for: 75, 80, ...
    architectures: tuple[int, ...]
    #: All installed packages that hold one.
    packages: tuple[NvrtcPackage, ...]
    #: The code of the reason; None if it compiles.
    decided_by: DecidedBy | None = None
    #: Why none compiles; empty if one does.
    reason: str = ""


@attrs.frozen
class KernelAvailability:
    """Whether a kernel runs on a device, and if not, why."""

    #: The kernel's name.
    name: str
    #: Whether it runs.
    available: bool
    #: The code of the reason; None if it runs.
    decided_by: DecidedBy | None = None
    #: Why it does not run; empty if it does.
    reason: str = ""


@attrs.frozen
class GpuDevice:
    """A device, and which kernels run on it."""

    #: The driver's number of it.
    index: int
    #: The driver's name of it.
    name: str
    #: Its compute capability as a number, 90 for 9.0.
    sm: int
    #: Every kernel of the catalog.
    kernels: tuple[KernelAvailability, ...]


@attrs.frozen
class Driver:
    """NVIDIA's driver and its devices, or why there are none."""

    #: Its version, as "580.65.06"; empty if it is not known.
    version: str
    #: The latest CUDA that it serves, as "13.0"; empty if it does not answer.
    cuda: str
    #: Why there are no devices; empty if it answers.
    reason: str
    #: All devices.
    devices: tuple[GpuDevice, ...]


@attrs.frozen
class Torch:
    """The installed PyTorch."""

    #: Its version; empty if it is not installed.
    version: str
    #: The CUDA that it was built for, as "13.0"; empty for a build without CUDA.
    cuda: str


@attrs.frozen
class Problem:
    """Something that does not fit together."""

    #: What contradicts what.
    found: str
    #: What to do.
    remedy: str


@attrs.frozen
class EnvironmentFacts:
    """All facts of an environment, as they were found."""

    #: NVIDIA's driver and its devices.
    driver: Driver
    #: The compiler.
    nvrtc: Nvrtc
    #: PyTorch.
    torch: Torch
    #: The Python modules that matter.
    modules: tuple[Module, ...]
    #: The compile cache.
    cache: CacheState
    #: Whether TENSOR_CONTRACTS_DISABLE_JIT forbids compiling.
    jit_disabled: bool
    #: The file of an ordinary package `cuda` that hides NVIDIA's namespace package; empty if there is none.
    shadowed_by: str = ""


def find_problems(facts: EnvironmentFacts) -> tuple[Problem, ...]:
    """Return the contradictions in the facts; a missing part is none."""
    return (*_shadowed(facts), *_mixed_majors(facts), *_driver_too_old(facts))


def _shadowed(facts: EnvironmentFacts) -> Iterator[Problem]:
    if facts.shadowed_by:
        yield Problem(f"{facts.shadowed_by} hides NVIDIA's package cuda", "Rename that folder, or remove its __init__.py.")


def _mixed_majors(facts: EnvironmentFacts) -> Iterator[Problem]:
    """Yield one problem, which names each part, if the parts that share a process are not all of one CUDA major."""
    parts = {f"torch {facts.torch.version} for CUDA {facts.torch.cuda}": facts.torch.cuda} if facts.torch.cuda else {}
    parts |= {f"{each.name} {each.version}": each.version for each in facts.modules if each.name == "cuda.bindings" and each.version}
    parts |= {f"{each.name} {each.version}": each.version for each in facts.nvrtc.packages}
    if facts.nvrtc.version:
        parts |= {f"NVRTC {facts.nvrtc.version} ({facts.nvrtc.library or 'file unknown'})": facts.nvrtc.version}
    majors = {_major(version) for version in parts.values()}
    if len(majors) < 2:
        return
    wanted = _major(facts.torch.cuda) if facts.torch.cuda else max(majors)
    others = ", ".join(part for part, version in parts.items() if _major(version) != wanted)
    why = "as torch is" if facts.torch.cuda else "or all of the other"
    remedy = f"Keep CUDA {wanted} alone, {why}: remove {others}, and run pip install 'tensorhub-contracts[cu{wanted}]'."
    yield Problem(f"several CUDA majors: {'; '.join(parts)}", remedy)


def _driver_too_old(facts: EnvironmentFacts) -> Iterator[Problem]:
    """Yield a problem for an NVRTC of a later CUDA major than the driver's: a driver loads code of its own major and of older ones."""
    driver, nvrtc = facts.driver.cuda, facts.nvrtc.version
    if driver and nvrtc and _major(driver) < _major(nvrtc):
        remedy = f"Upgrade the driver, or use torch for CUDA {_major(driver)} and tensorhub-contracts[cu{_major(driver)}]."
        yield Problem(f"the driver serves CUDA {driver}, and NVRTC {nvrtc} makes what it cannot load", remedy)


def _major(version: str) -> int:
    return int(version.partition(".")[0])

"""What `tensorhub doctor` knows of an environment, and what is wrong with it: pure judgement over facts."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tensorhub_cuda.errors import DecidedBy
from tensorhub_cuda.nvrtc.cache_folder import CacheState


@attrs.frozen
class Module:
    """A Python module that matters here: the version of its distribution, and the file it is from; both empty if it is missing."""

    name: str
    version: str
    file: str


@attrs.frozen
class NvrtcPackage:
    """An installed distribution that holds NVRTC for one CUDA major."""

    name: str
    version: str


@attrs.frozen
class Nvrtc:
    """The compiler: version as "13.5", the library's file, and all packages that hold one.

    Without a version, `decided_by` and `reason` say why none compiles here.
    """

    version: str
    library: str
    architectures: tuple[int, ...]
    packages: tuple[NvrtcPackage, ...]
    decided_by: DecidedBy | None = None
    reason: str = ""


@attrs.frozen
class KernelThere:
    """Whether a kernel runs on a device. If not, `decided_by` and `reason` say who decided; both are empty otherwise."""

    name: str
    available: bool
    decided_by: DecidedBy | None = None
    reason: str = ""


@attrs.frozen
class GpuDevice:
    """A device: its compute capability as a number, 90 for 9.0, and which kernels run on it."""

    index: int
    name: str
    sm: int
    kernels: tuple[KernelThere, ...]


@attrs.frozen
class Driver:
    """The driver's version, as "580.65.06", the latest CUDA that it serves, as "13.0", and its devices.

    Without `cuda`, `reason` says why there are no devices.
    """

    version: str
    cuda: str
    reason: str
    devices: tuple[GpuDevice, ...]


@attrs.frozen
class Torch:
    """PyTorch's version and the CUDA it was built for, as "13.0": empty for a build without, and both empty without PyTorch."""

    version: str
    cuda: str


@attrs.frozen
class Problem:
    """Something that does not fit together, and what to do."""

    found: str
    remedy: str


@attrs.frozen
class EnvironmentFacts:
    """All facts, as they were found."""

    driver: Driver
    nvrtc: Nvrtc
    torch: Torch
    modules: tuple[Module, ...]
    cache: CacheState
    jit_disabled: bool
    shadowed_by: str = ""  # the file of an ordinary package `cuda` that hides NVIDIA's namespace package


def find_problems(facts: EnvironmentFacts) -> tuple[Problem, ...]:
    """Return everything in the facts that contradicts something else; a missing part is no contradiction."""
    return (*_shadowed(facts), *_mixed_majors(facts), *_driver_too_old(facts))


def _shadowed(facts: EnvironmentFacts) -> Iterator[Problem]:
    if facts.shadowed_by:
        yield Problem(f"{facts.shadowed_by} hides NVIDIA's package cuda", "Rename that folder, or remove its __init__.py.")


def _mixed_majors(facts: EnvironmentFacts) -> Iterator[Problem]:
    """Yield one problem if the parts that share a process are not all of one CUDA major, and name each part."""
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
    """A driver loads the machine code of its own CUDA major and of older ones."""
    driver, nvrtc = facts.driver.cuda, facts.nvrtc.version
    if driver and nvrtc and _major(driver) < _major(nvrtc):
        remedy = f"Upgrade the driver, or use torch for CUDA {_major(driver)} and tensorhub-contracts[cu{_major(driver)}]."
        yield Problem(f"the driver serves CUDA {driver}, and NVRTC {nvrtc} makes what it cannot load", remedy)


def _major(version: str) -> int:
    return int(version.partition(".")[0])

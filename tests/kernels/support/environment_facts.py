"""The facts of a machine on which everything fits together, but for what a test changes."""

from __future__ import annotations

from tensorhub_cuda.environment.facts import Driver, EnvironmentFacts, Module, Nvrtc, NvrtcPackage, Torch
from tensorhub_cuda.nvrtc.cache_folder import BOUND_BYTES, CacheState

KNOWN = (75, 80, 86, 89, 90, 100, 120)
CACHE = CacheState("/cache", "default", "ready", "", 0, 0, BOUND_BYTES)


def facts(
    *,
    driver: str = "13.0",
    nvrtc: str = "13.0",
    bindings: str = "13.0.1",
    torch: str = "13.0",
    packages: tuple[tuple[str, str], ...] = (("nvidia-cuda-nvrtc", "13.0.88"),),
    shadowed_by: str = "",
) -> EnvironmentFacts:
    """Return facts of a machine on which all is of one CUDA major, but for what is given."""
    return EnvironmentFacts(
        driver=Driver("580.65.06" if driver else "", driver, "" if driver else "no NVIDIA driver", ()),
        nvrtc=Nvrtc(nvrtc, "/site/libnvrtc.so", KNOWN if nvrtc else (), tuple(NvrtcPackage(*each) for each in packages)),
        torch=Torch("2.14.0", torch),
        modules=(Module("cuda.bindings", bindings, "/site/cuda/bindings/__init__.py" if bindings else ""),),
        cache=CACHE,
        jit_disabled=False,
        shadowed_by=shadowed_by,
    )

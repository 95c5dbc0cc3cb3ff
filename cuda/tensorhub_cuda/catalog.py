"""The kernels by name: their source, tile, memory and the least compute capability. Data, and no import of torch or CUDA."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import attrs

from tensorhub_cuda.errors import KernelUnavailable

#: Counts changes of the calling convention: a part of the compile cache's key.
ABI = 1

#: The compute capabilities that the kernels' code was compiled for and looked at: registers, spills, instructions. None is
#: claimed for another one, older or newer, whatever a compiler makes of it.
ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)

Compute = Literal["w8a16", "w8a32", "w8a8", "quantize"]

_LINEAR_SOURCES = ("primitives.cuh", "e4m3.cuh", "scaled_linear.cuh")
_TILE_SOURCES = (*_LINEAR_SOURCES, "matrix_tile.cuh")


@attrs.frozen
class Kernel:
    """One kernel. `name` is its symbol, and `cuda.nvrtc.` with the name the compute path that a report shows.

    `tile_m` and `tile_n` are rows and columns of y for one thread block: a launch has ceil(n / tile_n) by ceil(m / tile_m) of
    them; quantize_activations has it over its codes [m, k]. `shared_bytes` are dynamic. `max_registers` bounds the registers of a
    thread on every architecture, without a spill: what NVRTC 13.5 gave, and some to spare for others. `needs_alignment`: k is a
    multiple of 16, and rows of weight and x begin on 16 bytes; other kernels take anything.
    """

    name: str
    compute: Compute
    sources: tuple[str, ...]
    threads: int
    tile_m: int
    tile_n: int
    shared_bytes: int
    minimum_sm: int
    max_registers: int
    needs_alignment: bool

    @property
    def compute_path(self) -> str:
        """What a report calls this kernel."""
        return f"cuda.nvrtc.{self.name}"


KERNELS: tuple[Kernel, ...] = (
    Kernel("block_fp8_w8a16_small_m8", "w8a16", (*_LINEAR_SOURCES, "block_fp8_w8a16_small_m.cu"), 128, 8, 16, 2048, 80, 72, False),
    Kernel("block_fp8_w8a16_small_m16", "w8a16", (*_LINEAR_SOURCES, "block_fp8_w8a16_small_m.cu"), 128, 16, 16, 4096, 80, 96, False),
    Kernel("block_fp8_w8a16_tile", "w8a16", (*_TILE_SOURCES, "block_fp8_w8a16_tile.cu"), 128, 64, 128, 98304, 80, 240, True),
    Kernel("block_fp8_w8a8_tile", "w8a8", (*_TILE_SOURCES, "block_fp8_w8a8_tile.cu"), 256, 64, 128, 73728, 89, 160, True),
    Kernel("block_fp8_w8a32_tile", "w8a32", (*_LINEAR_SOURCES, "block_fp8_w8a32.cu"), 128, 32, 64, 13312, 75, 72, False),
    Kernel("quantize_activations", "quantize", ("primitives.cuh", "quantize_activations.cu"), 128, 4, 128, 0, 89, 40, False),
)


def kernel(name: str) -> Kernel:
    """Return a kernel by its name; raises KeyError for a name that no kernel has."""
    for each in KERNELS:
        if each.name == name:
            return each
    raise KeyError(name)


def not_claimed(kernel: Kernel, sm: int) -> str:
    """Return why a kernel is not claimed for a compute capability such as 90, or nothing if it is."""
    if sm < kernel.minimum_sm:
        return f"it needs sm_{kernel.minimum_sm} or later"
    if sm not in ARCHITECTURES:
        return f"its code was looked at for {', '.join(f'sm_{each}' for each in ARCHITECTURES)} alone"
    return ""


def read_source(kernel: Kernel) -> str:
    """Return the source of a kernel: its files, one after the other. It includes nothing."""
    folder = files("tensorhub_cuda") / "kernels"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in kernel.sources)


def check_floor(kernel: Kernel, sm: int) -> None:
    """Raise KernelUnavailable for a compute capability that the kernel is not claimed for: below its minimum, or unknown."""
    reason = not_claimed(kernel, sm)
    if sm < kernel.minimum_sm:
        remedy = "Choose a lane with a lower minimum compute capability, or a newer device."
        raise KernelUnavailable("floor", kernel.name, f"compute capability sm_{kernel.minimum_sm} or later", f"sm_{sm}", remedy)
    if reason:
        remedy = "Upgrade tensorhub-contracts, which may know this device by now, or compute elsewhere."
        raise KernelUnavailable("floor", kernel.name, f"a device that it is claimed for: {reason}", f"sm_{sm}", remedy)

"""The kernels by name: their source, tile, memory and minimum compute capability. Data, and no import of torch or CUDA."""

from __future__ import annotations

from importlib.resources import files
from typing import Final, Literal

import attrs

from tensorhub_cuda.errors import KernelUnavailable

#: Counts changes of the calling convention: a part of the compile cache's key.
ABI: Final = 1

#: Rows and columns of a weight that share one scale of a block grid, and activations along K that share one when they are quantized.
BLOCK: Final = 128

#: The compute capabilities that the kernels' code was compiled and checked for: registers, spills, instructions. No kernel is
#: supported on another one, older or newer, even if it compiles for it.
ARCHITECTURES: Final = (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)

Compute = Literal["w8a16", "w8a32", "w8a8", "quantize"]

_LINEAR_SOURCES = ("primitives.cuh", "e4m3.cuh", "scaled_linear.cuh")
_TILE_SOURCES = (*_LINEAR_SOURCES, "matrix_tile.cuh")


@attrs.frozen
class Kernel:
    """One kernel. A launch has ceil(n / tile_n) by ceil(m / tile_m) thread blocks; that of quantize_activations has k for n."""

    #: The symbol in the source and the cubin.
    name: str
    #: What it computes: a projection in one of three arithmetics, or quantized activations.
    compute: Compute
    #: Files of the folder `kernels`, in the order in which they are compiled as one.
    sources: tuple[str, ...]
    #: Threads of a block.
    threads: int
    #: Rows of y (of the codes, for quantize_activations) that one thread block computes.
    tile_m: int
    #: Columns of y (of the codes) that one thread block computes.
    tile_n: int
    #: Bytes of dynamic shared memory of a block.
    shared_bytes: int
    #: The minimum compute capability, 80 for 8.0.
    minimum_sm: int
    #: Bound of a thread's registers on every architecture, without a spill: what NVRTC 13.5 gave, and some to spare for others.
    max_registers: int
    #: Whether k must be a multiple of 16, and rows of weight and x begin on 16 bytes; other kernels take any layout.
    needs_alignment: bool

    @property
    def compute_path(self) -> str:
        """The compute path that a report shows: `cuda.nvrtc.` and the name."""
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


def unsupported_reason(kernel: Kernel, sm: int) -> str:
    """Return why a kernel is not supported on a compute capability such as 90; an empty string if it is."""
    if sm < kernel.minimum_sm:
        return f"its minimum compute capability is sm_{kernel.minimum_sm}"
    if sm not in ARCHITECTURES:
        return f"its code was checked for {', '.join(f'sm_{each}' for each in ARCHITECTURES)} only"
    return ""


def read_source(kernel: Kernel) -> str:
    """Return the source of a kernel: its files, one after the other. It includes nothing."""
    folder = files("tensorhub_cuda") / "kernels"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in kernel.sources)


def require_supported(kernel: Kernel, sm: int) -> None:
    """Raise KernelUnavailable (floor) for a compute capability below the kernel's minimum, or that its code was not checked for."""
    reason = unsupported_reason(kernel, sm)
    if not reason:
        return
    if sm < kernel.minimum_sm:
        expected = f"the minimum compute capability, sm_{kernel.minimum_sm}, or a later one"
        remedy = "Choose a lane with a lower minimum compute capability, or a newer device."
    else:
        expected = f"a compute capability that it is supported on: {reason}"
        remedy = "Upgrade tensorhub-contracts, which may know this device by now, or compute elsewhere."
    raise KernelUnavailable("floor", kernel.name, expected, f"sm_{sm}", remedy)

"""Chooses the kernel of a call from plain numbers: no torch, no device, so that a plan can be made and tested anywhere."""

from __future__ import annotations

from typing import Final, Literal

from tensorhub_cuda.catalog import Kernel, kernel, require_supported
from tensorhub_cuda.errors import KernelUnavailable

#: The arithmetics of a projection: weights are FP8 in all of them, activations BF16, F32, or quantized to FP8 by the operator.
LinearCompute = Literal["w8a16", "w8a32", "w8a8"]

#: What a vector load moves: pointers and row strides of the kernels that need alignment are multiples of it.
VECTOR_BYTES: Final = 16

#: Codes of one row that a kernel which needs alignment loads at once.
ALIGNED_K: Final = 16

_W8A16_SMALL_M8: Final = kernel("block_fp8_w8a16_small_m8")
_W8A16_SMALL_M16: Final = kernel("block_fp8_w8a16_small_m16")
_W8A16_TILE: Final = kernel("block_fp8_w8a16_tile")
_W8A32_TILE: Final = kernel("block_fp8_w8a32_tile")
_W8A8_TILE: Final = kernel("block_fp8_w8a8_tile")
_QUANTIZE: Final = kernel("quantize_activations")

_KERNELS_OF: Final[dict[str, tuple[Kernel, ...]]] = {
    "w8a16": (_W8A16_SMALL_M8, _W8A16_SMALL_M16, _W8A16_TILE),
    "w8a32": (_W8A32_TILE,),
    "w8a8": (_QUANTIZE, _W8A8_TILE),
}


def is_aligned(*byte_counts: int) -> bool:
    """Return whether all of some pointers and row strides, in bytes, are multiples of a vector load's 16."""
    joined = 0
    for each in byte_counts:
        joined |= each
    return joined % VECTOR_BYTES == 0


def choose_kernel(compute: str, m: int, k: int, sm: int, aligned: bool) -> Kernel:
    """Return the matrix kernel for `m` rows of activations and `k` columns, on compute capability `sm` (90 for 9.0).

    `aligned`: rows of the weight, and of x for w8a16, begin on 16 bytes (`is_aligned`); for w8a8 the operator quantizes the
    activations into memory that is aligned. Raises KernelUnavailable for a layout that the kernel does not take (alignment) and,
    if the layout is right, for a device that it does not run on (floor), and ValueError for an unknown compute.
    """
    vector_loads = aligned and k % ALIGNED_K == 0
    chosen = _chosen(compute, m, vector_loads)
    if chosen.needs_alignment and not vector_loads:
        found = f"k = {k}" if aligned else f"rows that do not, k = {k}"
        remedy = "Copy the weight to a tensor whose rows do, or choose w8a16 or w8a32, which take any layout."
        raise KernelUnavailable("alignment", chosen.name, "k a multiple of 16, and rows that begin on 16 bytes", found, remedy)
    require_supported(chosen, sm)
    return chosen


def compute_path_of(compute: str, m: int, k: int, sm: int, aligned: bool) -> str:
    """Return the compute path of the kernel that `choose_kernel` returns, as "cuda.nvrtc.block_fp8_w8a16_tile"; raises as it does."""
    return choose_kernel(compute, m, k, sm, aligned).compute_path


def kernels_of(compute: str) -> tuple[Kernel, ...]:
    """Return every kernel that a call of a compute may launch, for any sizes; raises ValueError for an unknown compute."""
    try:
        return _KERNELS_OF[compute]
    except KeyError:
        raise ValueError(f"compute: one of {', '.join(_KERNELS_OF)}, not {compute!r}") from None


def quantize_kernel() -> Kernel:
    """Return the kernel that quantizes the activations of w8a8, before the matrix kernel."""
    return _QUANTIZE


def _chosen(compute: str, m: int, vector_loads: bool) -> Kernel:
    if compute == "w8a16":
        if m <= _W8A16_SMALL_M8.tile_m:
            return _W8A16_SMALL_M8
        # The tile kernel loads vectors only. Kernels for few rows take any layout, at the price of reading the weight
        # once for every 16 rows.
        return _W8A16_SMALL_M16 if m <= _W8A16_SMALL_M16.tile_m or not vector_loads else _W8A16_TILE
    return kernels_of(compute)[-1]

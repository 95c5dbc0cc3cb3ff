"""Decodes `hf.fp8-blockwise@1`: FP8 E4M3 weights with one scale for each 128 x 128 block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import decode_units
from tensorhub_decoders.reference_dequants import dequantize_block_scaled

if TYPE_CHECKING:
    import torch

TENSORHUB_PLUGIN_API: Final = 1


@implements_contract(
    contract="hf.fp8-blockwise@1",
    serves=("fp8-w8a16", "fp8-w8a32"),
    composes_lora=False,
    requires=("torch",),
    why="FP8 releases of DeepSeek and Qwen are in this layout. Weights are upcast ahead of time, exactly, on any device.",
)
def decode_hf_fp8_blockwise(inspection: Inspection, *, lane: str, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a proved checkpoint by its name: weights decoded to `dtype`, the rest as it is stored.

    Decoded weights are what `dequantize_block_scaled` gives, bit for bit. Raises `Refusal` as `decode_units` does.
    """

    def dequantize(unit: Mapping[str, torch.Tensor], out_dtype: torch.dtype) -> torch.Tensor:
        return dequantize_block_scaled(unit["weight"], unit["scale"], out_dtype=out_dtype)

    return decode_units(inspection, dequantize, contract="hf.fp8-blockwise@1", lane=lane, dtype=dtype)


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_hf_fp8_blockwise,)

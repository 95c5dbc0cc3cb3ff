"""Decodes `hf.fp8-blockwise@1`: FP8 E4M3 weights with one scale for each 128 x 128 block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import DecodedTensor, Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import lane_dtype, require_contract

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
def decode_hf_fp8_blockwise(inspection: Inspection, *, lane: str, dtype: str) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name: weights upcast to `dtype`, the rest as it is stored.

    Upcast weights are what `reference_dequants.dequantize_block_scaled` gives, bit for bit. Raises `Refusal` for another
    contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    from tensorhub_decoders.streaming import Conversion, Strip, stream
    from tensorhub_decoders.upcast_strips import upcast_block_scaled

    def convert(strip: Strip, sidecars: Mapping[str, torch.Tensor]) -> None:
        scale = sidecars["scale"] if sidecars["scale"].dim() == 2 else sidecars["scale"][strip.matrix]
        upcast_block_scaled(strip.stored, scale, strip.out, first_row=strip.first_row)

    require_contract(inspection, "hf.fp8-blockwise@1")
    return stream(inspection, Conversion(inspection.unit_tensors, convert, lane_dtype(lane, dtype), "cpu.upcast", stacked=True))


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_hf_fp8_blockwise,)

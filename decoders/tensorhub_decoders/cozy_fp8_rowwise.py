"""Decodes `cozy.fp8-rowwise@1`: FP8 E4M3 weights with one scale for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import DecodedTensor, Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import require_contract, require_resident

if TYPE_CHECKING:
    import torch

TENSORHUB_PLUGIN_API: Final = 1

CONTRACT: Final = "cozy.fp8-rowwise@1"


@implements_contract(
    contract=CONTRACT,
    serves=("fp8-w8a16", "fp8-w8a32"),
    composes_lora=False,
    requires=("torch",),
    why="Cozy's FP8 checkpoints are in this layout. Weights are upcast exactly, ahead of time or inside the projection.",
)
def decode_cozy_fp8_rowwise(
    inspection: Inspection, *, lane: str, dtype: str, resident: bool = False, device: str = "cpu"
) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name: weights upcast to `dtype`, the rest as it is stored.

    Upcast weights are what `upcast.reference.dequantize_row_scaled` gives, bit for bit. With `resident`, weights stay as
    they are stored too: each comes as the module that computes with it (`resident.units`). Raises `Refusal`
    for another contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    require_contract(inspection, CONTRACT)
    if resident:
        return _resident(inspection, lane, dtype, device)
    from tensorhub_decoders.upcast.streaming import Strip, upcast_units
    from tensorhub_decoders.upcast.strips import upcast_row_scaled

    def convert(strip: Strip, sidecars: Mapping[str, torch.Tensor]) -> None:
        rows = slice(strip.first_row, strip.first_row + strip.stored.shape[0])
        upcast_row_scaled(strip.stored, sidecars["scale"][rows], strip.out)

    return upcast_units(inspection, convert, lane=lane, dtype=dtype, device=device)


@implements_contract(
    contract=CONTRACT,
    serves=("fp8-w8a8-dynamic",),
    composes_lora=False,
    requires=("torch", "torch.version.cuda", "cuda.core"),
    why="Matrix units of a GPU multiply FP8: activations are quantized as they come, weights stay as they are stored.",
)
def decode_cozy_fp8_rowwise_w8a8(inspection: Inspection, *, lane: str, dtype: str, resident: bool, device: str) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name, weights as modules that quantize their activations.

    Only on a CUDA device, and only `resident`. Raises `Refusal` as `decode_cozy_fp8_rowwise` does, and for what no kernel
    computes here (`kernel-unavailable`).
    """
    require_contract(inspection, CONTRACT)
    require_resident("decode_cozy_fp8_rowwise_w8a8", resident)
    return _resident(inspection, lane, dtype, device)


def _resident(inspection: Inspection, lane: str, dtype: str, device: str) -> Iterator[DecodedTensor]:
    from tensorhub_decoders.resident.linear import RowFp8Linear
    from tensorhub_decoders.resident.units import resident_units

    return resident_units(inspection, RowFp8Linear, lane=lane, dtype=dtype, device=device)


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoders of this module."""
    return (decode_cozy_fp8_rowwise, decode_cozy_fp8_rowwise_w8a8)

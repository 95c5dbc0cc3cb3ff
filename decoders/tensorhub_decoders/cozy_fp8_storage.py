"""Decodes `cozy.fp8-storage@1`: FP8 E4M3 weights with no scale at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import DecodedTensor, Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import require_contract

if TYPE_CHECKING:
    import torch

TENSORHUB_PLUGIN_API: Final = 1


@implements_contract(
    contract="cozy.fp8-storage@1",
    serves=("fp8-w8a16", "fp8-w8a32"),
    composes_lora=False,
    requires=("torch",),
    why="Cozy's storage checkpoints keep FP8 values as they are. Weights are upcast ahead of time, exactly, on any device.",
)
def decode_cozy_fp8_storage(inspection: Inspection, *, lane: str, dtype: str, device: str = "cpu") -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name: weights upcast to `dtype`, the rest as it is stored.

    Upcast weights are what `upcast.reference.dequantize_unscaled` gives, bit for bit. Raises `Refusal` for another
    contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    from tensorhub_decoders.upcast.streaming import Strip, upcast_units
    from tensorhub_decoders.upcast.strips import upcast_unscaled

    def convert(strip: Strip, sidecars: Mapping[str, torch.Tensor]) -> None:
        upcast_unscaled(strip.stored, strip.out)

    require_contract(inspection, "cozy.fp8-storage@1")
    return upcast_units(inspection, convert, lane=lane, dtype=dtype, device=device)


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_cozy_fp8_storage,)

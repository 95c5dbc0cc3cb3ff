"""Decodes `cozy.fp8-storage@1`: FP8 E4M3 weights with no scale at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import decode_units
from tensorhub_decoders.reference_dequants import dequantize_unscaled

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
def decode_cozy_fp8_storage(inspection: Inspection, *, lane: str, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a proved checkpoint by its name: weights decoded to `dtype`, the rest as it is stored.

    Decoded weights are what `dequantize_unscaled` gives, bit for bit. Raises `Refusal` as `decode_units` does.
    """

    def dequantize(unit: Mapping[str, torch.Tensor], out_dtype: torch.dtype) -> torch.Tensor:
        return dequantize_unscaled(unit["weight"], out_dtype=out_dtype)

    return decode_units(inspection, dequantize, contract="cozy.fp8-storage@1", lane=lane, dtype=dtype)


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_cozy_fp8_storage,)

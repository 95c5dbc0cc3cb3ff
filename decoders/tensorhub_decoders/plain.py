"""Decodes `plain.bf16@1`, `plain.f16@1`, `plain.f32@1` and `plain.mixed@1`: the bytes are the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import DecodedTensor, Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import lane_dtype, on_device, require_contract

if TYPE_CHECKING:
    import torch

TENSORHUB_PLUGIN_API: Final = 1

_WHY: Final = "Unquantized checkpoints are read as they are stored."


@implements_contract(contract="plain.bf16@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
@implements_contract(contract="plain.f16@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
@implements_contract(contract="plain.f32@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
@implements_contract(contract="plain.mixed@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
def decode_plain(inspection: Inspection, *, lane: str, dtype: str, device: str = "cpu") -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name, matrices rounded to `dtype` (BF16 or F16), vectors as they are.

    Rounding is to nearest even, and none at all where the checkpoint has `dtype` already. Raises `Refusal` for another
    contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    from tensorhub_decoders.upcast.streaming import Strip, UnitDecoding, stream

    def convert(strip: Strip, sidecars: Mapping[str, torch.Tensor]) -> None:
        strip.out.copy_(strip.stored)

    require_contract(inspection, *(f"plain.{each}@1" for each in ("bf16", "f16", "f32", "mixed")))
    assert inspection.groups is not None  # a proved contract has them
    matrices = (name for name, geometry in inspection.groups.unquantized.items() if len(geometry.shape) > 1 and geometry.dtype != dtype)
    return on_device(
        stream(inspection, UnitDecoding({name: {"weight": name} for name in matrices}, convert, lane_dtype(lane, dtype), "cpu.cast")),
        device,
    )


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_plain,)

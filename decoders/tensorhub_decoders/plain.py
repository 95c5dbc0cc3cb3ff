"""Decodes `plain.bf16@1`, `plain.f16@1` and `plain.f32@1`: the bytes are the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import Inspection, hookimpl, implements_contract
from tensorhub_decoders.decoding import lane_dtype
from tensorhub_decoders.reading import TensorReader, stored_names

if TYPE_CHECKING:
    import torch

TENSORHUB_PLUGIN_API: Final = 1

_WHY: Final = "Dense checkpoints are read as they are stored."


@implements_contract(contract="plain.bf16@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
@implements_contract(contract="plain.f16@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
@implements_contract(contract="plain.f32@1", serves=("bf16-w16a16",), composes_lora=True, requires=("torch",), why=_WHY)
def decode_plain(inspection: Inspection, *, lane: str, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a proved checkpoint by its name, matrices rounded to `dtype` (BF16 or F16), vectors as they are.

    Rounding is to nearest even, and none at all where the checkpoint has `dtype` already. Raises `Refusal`
    (`lane-dtype`) for a dtype that the lane does not have.
    """
    import torch

    inspection.require()
    out_dtype = lane_dtype(lane, dtype)
    with TensorReader(inspection) as reader:
        for name in stored_names(inspection):
            tensor = reader.read(name)
            is_matrix = tensor.dim() >= 2 and tensor.is_floating_point() and tensor.dtype is not torch.float64
            yield name, tensor.to(out_dtype) if is_matrix else tensor


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoder of this module."""
    return (decode_plain,)

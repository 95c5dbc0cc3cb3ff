"""Decodes `hf.fp8-blockwise@1`: FP8 E4M3 weights with one scale for each 128 x 128 block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorhub_contracts import DecodedTensor, Inspection, hookimpl, implements_contract, inspect
from tensorhub_decoders.decoding import require_contract, require_resident

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from tensorhub_contracts.checkpoints.header import Source
    from tensorhub_decoders.transformers_models.loading import ModelReport

TENSORHUB_PLUGIN_API: Final = 1

CONTRACT: Final = "hf.fp8-blockwise@1"


@implements_contract(
    contract=CONTRACT,
    serves=("fp8-w8a16", "fp8-w8a32"),
    composes_lora=False,
    requires=("torch",),
    why="FP8 releases of DeepSeek and Qwen are in this layout. Weights are upcast exactly, ahead of time or inside the projection.",
)
def decode_hf_fp8_blockwise(
    inspection: Inspection, *, lane: str, dtype: str, resident: bool = False, device: str = "cpu"
) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name: weights upcast to `dtype`, the rest as it is stored.

    Upcast weights are what `upcast.reference.dequantize_block_scaled` gives, bit for bit. With `resident`, weights stay as
    they are stored too: each comes as the module that computes with it (`resident.units`). Raises `Refusal`
    for another contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    require_contract(inspection, CONTRACT)
    if resident:
        return _resident(inspection, lane, dtype, device)
    from tensorhub_decoders.upcast.streaming import Strip, upcast_units
    from tensorhub_decoders.upcast.strips import upcast_block_scaled

    def convert(strip: Strip, sidecars: Mapping[str, torch.Tensor]) -> None:
        scale = sidecars["scale"] if sidecars["scale"].dim() == 2 else sidecars["scale"][strip.matrix]
        upcast_block_scaled(strip.stored, scale, strip.out, first_row=strip.first_row)

    return upcast_units(inspection, convert, lane=lane, dtype=dtype, device=device, stacked=True)


@implements_contract(
    contract=CONTRACT,
    serves=("fp8-w8a8-dynamic",),
    composes_lora=False,
    requires=("torch", "torch.version.cuda", "cuda.core"),
    why="Matrix units of a GPU multiply FP8: activations are quantized as they come, weights stay as they are stored.",
)
def decode_hf_fp8_blockwise_w8a8(inspection: Inspection, *, lane: str, dtype: str, resident: bool, device: str) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name, weights as modules that quantize their activations.

    Only on a CUDA device, and only `resident`. Raises `Refusal` as `decode_hf_fp8_blockwise` does, and for what no kernel
    computes here (`kernel-unavailable`).
    """
    require_contract(inspection, CONTRACT)
    require_resident("decode_hf_fp8_blockwise_w8a8", resident)
    return _resident(inspection, lane, dtype, device)


def _resident(inspection: Inspection, lane: str, dtype: str, device: str) -> Iterator[DecodedTensor]:
    from tensorhub_decoders.resident.linear import BlockFp8Linear
    from tensorhub_decoders.resident.units import resident_units

    return resident_units(inspection, BlockFp8Linear, lane=lane, dtype=dtype, device=device)


def inspect_hf_fp8_blockwise(source: Source | Path, component: str = "") -> Inspection:
    """Prove that a checkpoint is in `hf.fp8-blockwise@1`, or raise `Refusal` with every reason why it is not."""
    return inspect(source, component, contract=CONTRACT).require()


def load_hf_fp8_blockwise(
    path: str | Path,
    component: str = "",
    *,
    dtype: str,
    resident: bool,
    model_class: type[Any] | None = None,
    lane: str | Sequence[str] | None = None,
    device: str = "cpu",
    unused: Sequence[str] = (),
) -> tuple[Any, ModelReport]:
    """`load_model` for `hf.fp8-blockwise@1` and nothing else: raises `Refusal` for a tree in any other layout, by name."""
    from tensorhub_decoders.transformers_models.loading import load_model

    return load_model(
        path,
        component,
        dtype=dtype,
        resident=resident,
        contract=CONTRACT,
        model_class=model_class,
        lane=lane,
        device=device,
        unused=unused,
    )


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoders of this module."""
    return (decode_hf_fp8_blockwise, decode_hf_fp8_blockwise_w8a8)

"""What decoders share: they walk over a proved checkpoint and decode one unit after another."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from tensorhub_contracts import DecodedTensor, Inspection, Refusal, Violation
from tensorhub_contracts.registry.names import parse_lane
from tensorhub_decoders.devices import usable_device
from tensorhub_decoders.reading import TensorReader, stored_names, torch_dtype

if TYPE_CHECKING:
    import torch

#: Decodes one unit: its tensors by role, and the dtype of the result.
Dequantize = Callable[[Mapping[str, "torch.Tensor"], "torch.dtype"], "torch.Tensor"]

#: What decoded weights, and activations before they are quantized, may be, by the bits of the activations.
_DTYPES: Final = {8: ("BF16",), 16: ("BF16", "F16"), 32: ("F32",)}


def decode_units(
    inspection: Inspection, dequantize: Dequantize, *, contract: str, lane: str, dtype: str, compute_path: str
) -> Iterator[DecodedTensor]:
    """Yield every weight of a checkpoint by its name, decoded, and every tensor that nothing scales as it is stored.

    The plain way, for a decoder that works on whole units. `compute_path` is what it reports for them. Scales are used up
    and not yielded. `lane` is the full name of one that the decoder serves, `dtype` what decoded weights become: BF16 or
    F16 for activations of 16 bits, F32 for those of 32. Raises `Refusal` before the first tensor for an inspection of
    another contract (`contract-mismatch`) and for a dtype that the lane does not have (`lane-dtype`).
    """
    require_contract(inspection, contract)
    out_dtype = lane_dtype(lane, dtype)
    from tensorhub_decoders.exact_torch import exact_torch  # torch, which not every caller of this module needs

    with TensorReader(inspection) as reader:
        for name in stored_names(inspection):
            roles = inspection.unit_tensors.get(name)
            if roles is not None:
                unit = {role: reader.read(tensor) for role, tensor in roles.items()}
                with exact_torch():
                    decoded = dequantize(unit, out_dtype)
                yield DecodedTensor(name, decoded, compute_path)
            elif name not in inspection.sidecars:
                yield DecodedTensor(name, reader.read(name), "")


def on_device(decoded: Generator[DecodedTensor], device: str) -> Iterator[DecodedTensor]:
    """Return decoded tensors one after the other on a device; raises `Refusal` (`load-unsupported`) if there is none, at once."""
    place = usable_device(device)
    return decoded if place.type == "cpu" else _moved(decoded, place)


def _moved(decoded: Generator[DecodedTensor], place: torch.device) -> Iterator[DecodedTensor]:
    with closing(decoded):  # who stops early closes files at once
        for name, tensor, compute_path in decoded:
            yield DecodedTensor(name, tensor.to(place), compute_path)


def require_contract(inspection: Inspection, *contracts: str) -> None:
    """Raise `Refusal` unless an inspection proved one of these contracts."""
    inspection.require()
    if inspection.contract not in contracts:
        remedy = "Decode it with the decoder that the verdict names."
        raise Refusal(
            [
                Violation(
                    code="contract-mismatch",
                    object=inspection.path,
                    expected=" or ".join(contracts),
                    found=str(inspection.contract),
                    remedy=remedy,
                )
            ]
        )


def require_resident(decoder: str, resident: bool) -> None:
    """Raise `Refusal` (`load-unsupported`) unless weights are to stay as they are stored."""
    if not resident:
        remedy = "Ask for resident=True, or for a lane of 16 or 32 bits."
        raise Refusal(
            [
                Violation(
                    code="load-unsupported",
                    object=decoder,
                    expected="resident=True: its kernels multiply the stored codes",
                    found="resident=False",
                    remedy=remedy,
                )
            ]
        )


def upcasts(lane: str, dtype: str) -> bool:
    """Whether a lane computes with weights that are upcast to a dtype, named as the safetensors format does."""
    bits = parse_lane(lane).activation_bits
    return bits > 8 and dtype in _DTYPES.get(bits, ())


def lane_dtype(lane: str, dtype: str) -> torch.dtype:
    """Return torch's name for what decoded weights become in a lane; raises `Refusal` (`lane-dtype`) if it does not have it."""
    names = _DTYPES[parse_lane(lane).activation_bits]
    if dtype not in names:
        raise Refusal(
            [
                Violation(
                    code="lane-dtype",
                    object=lane,
                    expected=" or ".join(names),
                    found=dtype,
                )
            ]
        )
    return torch_dtype(dtype)

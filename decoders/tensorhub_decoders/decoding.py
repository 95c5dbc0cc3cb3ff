"""What the shipped decoders share: they walk over a proved checkpoint and decode one unit after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tensorhub_contracts import Inspection, Refusal, Violation
from tensorhub_contracts.lane_names import parse_lane
from tensorhub_decoders.reading import TensorReader, stored_names

if TYPE_CHECKING:
    import torch

#: Decodes one unit: its tensors by role, and the dtype of the result.
Dequantize = Callable[[Mapping[str, "torch.Tensor"], "torch.dtype"], "torch.Tensor"]

#: What decoded weights may be, by the bits of the activations that they meet.
_DTYPES: Final = {"16": {"BF16": "bfloat16", "F16": "float16"}, "32": {"F32": "float32"}}


def decode_units(
    inspection: Inspection, dequantize: Dequantize, *, contract: str, lane: str, dtype: str
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every weight of a checkpoint by its name, decoded, and every tensor that nothing scales as it is stored.

    Scales are used up and not yielded. `lane` is the full name of one that the decoder serves, `dtype` what decoded
    weights become: BF16 or F16 for activations of 16 bits, F32 for those of 32. Raises `Refusal` before the first
    tensor for an inspection of another contract (`contract-mismatch`) and for a dtype that the lane does not have
    (`lane-dtype`).
    """
    inspection.require()
    if inspection.contract != contract:
        remedy = "Decode it with the decoder that the verdict names."
        raise Refusal([Violation("contract-mismatch", inspection.path, contract, str(inspection.contract), remedy)])
    out_dtype = lane_dtype(lane, dtype)
    tensors_of = {unit.name: inspection.tensors_of(unit) for unit in inspection.units}
    sidecars = {name for unit, roles in tensors_of.items() for name in roles.values() if name != unit}
    with TensorReader(inspection) as reader:
        for name in stored_names(inspection):
            if name in tensors_of:
                unit = {role: reader.read(tensor) for role, tensor in tensors_of[name].items()}
                yield name, dequantize(unit, out_dtype)
            elif name not in sidecars:
                yield name, reader.read(name)


def lane_dtype(lane: str, dtype: str) -> torch.dtype:
    """Return torch's name for what decoded weights become in a lane; raises `Refusal` (`lane-dtype`) if it does not have it."""
    import torch

    names = _DTYPES[parse_lane(lane).activation.rpartition("a")[2]]
    if dtype not in names:
        raise Refusal([Violation("lane-dtype", lane, " or ".join(names), dtype, "Ask for a dtype of the lane, or for another lane.")])
    found: torch.dtype = getattr(torch, names[dtype])
    return found

"""Reads a checkpoint whose weights stay as they are stored: each unit becomes what computes with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import torch

from tensorhub_contracts import DecodedTensor, Inspection, Refusal, Violation
from tensorhub_contracts.registry.names import parse_lane
from tensorhub_decoders.decoding import lane_dtype
from tensorhub_decoders.devices import usable_device
from tensorhub_decoders.resident.compute_paths import compute_paths
from tensorhub_decoders.resident.experts import StackedExperts
from tensorhub_decoders.resident.linear import ResidentLinear
from tensorhub_decoders.resident.stored_weight import value_faults
from tensorhub_decoders.upcast.streaming import read_tensors


def resident_units(
    inspection: Inspection,
    linear: type[ResidentLinear],
    *,
    lane: str,
    dtype: str,
    device: str,
) -> Iterator[DecodedTensor]:
    """Yield every unit as a module that computes with the stored bytes, and every other tensor as it is stored.

    A unit of two dimensions becomes a `linear` without a bias, one of three a `StackedExperts`; both hold its `stored_type`.
    `dtype` is that of the activations, which the lane has to have (`lane-dtype`), `device` where everything goes. Before
    anything is read, raises `Refusal` (`kernel-unavailable`) with every unit that no kernel computes with there; when all
    tensors are read, (`payload-values`) with every unit whose codes or scales no resident lane computes with, and how many
    there are.
    """
    bits = parse_lane(lane).activation_bits
    lane_dtype(lane, dtype)
    place = usable_device(device)
    paths = compute_paths(inspection, bits, dtype, place)
    faults: list[Violation] = []
    with closing(read_tensors(inspection)) as tensors:  # who stops early closes files at once
        for each in tensors:
            if each.name not in inspection.unit_tensors:
                yield DecodedTensor(each.name, each.tensor.to(place), "")
                continue
            scale = each.sidecars["scale"]
            expected = "finite codes, and scales that are finite and not negative"
            faults += [
                Violation(code="payload-values", object=each.name, expected=expected, found=found)
                for found in value_faults(each.tensor, scale)
            ]
            if faults:
                continue
            unit = linear.stored_type(each.tensor, scale).to(place)
            if each.tensor.dim() == 2:
                module: torch.nn.Module = linear.from_stored(unit, bits)
            else:
                scale_name = inspection.unit_tensors[each.name]["scale"]
                names = (each.name.rpartition(".")[2], scale_name.rpartition(".")[2])
                module = StackedExperts(unit, names, activation_bits=bits)
            yield DecodedTensor(each.name, module, paths[each.name])
    if faults:
        raise Refusal(faults)

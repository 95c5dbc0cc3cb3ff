"""The devices that weights can be on, and what they can compute, as torch says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def usable_device(device: str) -> torch.device:
    """Return torch's device of a name; raises `Refusal` (`load-unsupported`) for a name that is none and a device that is not there."""
    import torch

    from tensorhub_contracts import Refusal, Violation

    try:
        place = torch.device(device)
    except RuntimeError:
        remedy = "Write cpu, cuda or cuda:0."
        raise Refusal(
            [Violation(code="load-unsupported", object=device, expected="the name of a device", found=repr(device), remedy=remedy)]
        ) from None
    if place.type == "cuda" and not (torch.cuda.is_available() and (place.index or 0) < torch.cuda.device_count()):
        remedy = "Ask `tensorhub doctor` what is missing, or load on the CPU."
        raise Refusal(
            [Violation(code="load-unsupported", object=device, expected="a CUDA device that torch can use", found="none", remedy=remedy)]
        )
    return place


def compute_capability(device: str) -> int | None:
    """Return the compute capability of a CUDA device as an sm number (90 for 9.0), or None for a device without one.

    Raises `Refusal` as `usable_device` does.
    """
    import torch

    place = usable_device(device)
    if place.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(place)
    return major * 10 + minor

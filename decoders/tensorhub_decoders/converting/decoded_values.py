"""What decoded values must be before they are written: the reference formula's, bit for bit where there is one, and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch

from tensorhub_contracts.errors import FaultError
from tensorhub_decoders.upcast.cutting import strips
from tensorhub_decoders.upcast.reference import REFERENCE_DEQUANTS, Compared

_BITS: Final = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


class UnfitValuesError(ValueError):
    """An unquantized tensor would hold what it should not: so many infinities, so many NaN."""

    def __init__(self, infinities: int, nans: int) -> None:
        self.infinities, self.nans = infinities, nans
        super().__init__(f"{infinities} infinities and {nans} NaN")


def require_reference(unit: str, reference: str, stored: Mapping[str, torch.Tensor], decoded: torch.Tensor) -> None:
    """Compare a decoded weight with what a reference dequant gives, NaN counting as one value.

    `reference` is a name of `REFERENCE_DEQUANTS`, `stored` the tensors of the unit by role. Raises `FaultError` if they
    differ in one bit.
    """
    compared: Iterable[Compared] = REFERENCE_DEQUANTS[reference](stored, decoded)
    if not all(_same(found, expected) for found, expected in compared):
        raise FaultError(
            [f"{unit}: the decoded weight is not what the reference dequant of its contract gives ({reference}); nothing of it was written"]
        )


def require_numbers(decoded: torch.Tensor, *, allow_nan: bool) -> None:
    """Raise `UnfitValuesError` for infinities in a decoded weight, and for NaN unless they are allowed."""
    flat = decoded.reshape(-1)
    infinities = nans = 0
    for begin, end in strips(flat.numel(), 1):
        strip = flat[begin:end]
        if not bool(torch.isfinite(strip).all()):
            infinities += int(strip.isinf().sum())
            nans += int(strip.isnan().sum())
    if infinities or (nans and not allow_nan):
        raise UnfitValuesError(infinities, 0 if allow_nan else nans)


def cast_unquantized(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return an unquantized tensor in another dtype; raises `UnfitValuesError` if a finite value becomes an infinity."""
    out = tensor.to(dtype)
    overflowing = int(out.isinf().sum()) - int(tensor.isinf().sum())
    if overflowing:
        raise UnfitValuesError(overflowing, 0)
    return out


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, where a NaN is a NaN whatever its payload."""
    bits = _BITS[found.dtype]
    if torch.equal(found.view(bits), expected.view(bits)):
        return True
    return bool(((found.view(bits) == expected.view(bits)) | (found.isnan() & expected.isnan())).all())

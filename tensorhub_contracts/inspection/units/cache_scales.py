"""Scales of the key and value cache: they scale no weight and are left alone, and what bears their name and is none is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates

_DTYPES: Final = ("BF16", "F16", "F32")

#: More heads of keys than any model has.
_MOST_HEADS: Final = 1_024


def cache_violations(candidates: Candidates) -> Iterator[Violation]:
    """Yield a violation for each tensor that is named like a cache scale and is neither one number nor one for each head."""
    checkpoint = candidates.checkpoint
    for name in candidates.groups.cache_scales:
        geometry = checkpoint.tensors[name]
        if not _is_cache_scale(geometry):
            yield Violation(
                code="cache-scale-invalid",
                object=name,
                expected=f"{' or '.join(_DTYPES)}, [] or [1] or one for each head, at most {_MOST_HEADS:,}",
                found=f"{geometry.dtype} {write_shape(geometry.shape)}",
                shard=checkpoint.shard_of[name],
            )


def _is_cache_scale(geometry: Geometry) -> bool:
    shape = geometry.shape
    return geometry.dtype in _DTYPES and (shape == () or (len(shape) == 1 and 1 <= shape[0] <= _MOST_HEADS))

"""One tensor as a header describes it."""

from __future__ import annotations

import msgspec

from tensorhub_contracts.dtypes import Dtype


class TensorEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A tensor's entry in a header: dtype, shape in elements, offsets in bytes from the start of the payload.

    A msgspec structure and not an attrs class, because a header of 90,000 entries is decoded straight into it.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

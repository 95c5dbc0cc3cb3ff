"""One tensor as a header describes it, and what tensors of one dtype and shape share."""

from __future__ import annotations

import msgspec

from tensorhub_contracts.dtypes import Dtype, byte_length


class TensorEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A tensor's entry in a header: dtype, shape in elements, offsets in bytes from the start of the payload.

    A header of 90,000 entries is decoded straight into it.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Geometry(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A dtype, a shape in elements, and the bytes that such a tensor takes; None if no file can hold it.

    A checkpoint has tens of thousands of tensors and some dozens of geometries, so that tensors of one geometry share
    one object, and identity tells them apart: what is slow is to fetch cold objects from memory.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    byte_length: int | None


class Geometries(dict[tuple[Dtype, tuple[int, ...]], Geometry]):
    """Makes one geometry for each dtype and shape, and remembers it."""

    def __missing__(self, key: tuple[Dtype, tuple[int, ...]]) -> Geometry:
        dtype, shape = key
        possible = all(dimension >= 0 for dimension in shape)
        self[key] = made = Geometry(dtype, shape, byte_length(dtype, shape) if possible else None)
        return made

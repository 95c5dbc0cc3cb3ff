"""Weights that are cut: slices of a unit's rows with the whole unit's grid, and strips of very wide ones."""

from __future__ import annotations

import itertools

import pytest
import tensorhub_decoders.upcast.cutting as module
import torch
from tensorhub_decoders.upcast.cutting import strips
from tensorhub_decoders.upcast.strips import require_grid, upcast_block_scaled


def codes(*shape: int) -> torch.Tensor:
    """Every code but NaN, in turn."""
    count = torch.Size(shape).numel()
    stored = (torch.arange(count) % 256).to(torch.uint8)
    stored[(stored & 0x7F) == 0x7F] = 0x31
    return stored.view(shape).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("columns", [module.STRIP_ELEMENTS, module.STRIP_ELEMENTS + 1, 2_000_000, 1 << 40])
def test_rows_that_are_wider_than_a_strip_come_one_by_one(columns: int) -> None:
    for origin in (0, 127):
        assert list(itertools.islice(strips(3, columns, origin=origin), 10)) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("scale", [(1, 1), (1, 2), (2, 2), (3, 1)])
def test_a_slice_takes_a_grid_that_reaches_its_last_row(scale: tuple[int, int]) -> None:
    """Rows 128 to 255 of a unit need two rows of its grid, of one column; there may be more rows."""
    weight, grid = torch.empty(128, 128), torch.ones(scale)
    if scale == (3, 1):
        assert require_grid(weight, grid, 128) == 128
    else:
        with pytest.raises(ValueError, match=r"from row 128 on: expected \(2, 1\)"):
            require_grid(weight, grid, 128)


def test_a_slice_of_each_matrix_of_a_stack_begins_at_the_same_row() -> None:
    weight = codes(2, 300, 140)
    scale = torch.arange(1.0, 13.0).view(2, 3, 2)
    whole = upcast_block_scaled(weight, scale, torch.empty(2, 300, 140))
    for begin, end in ((64, 200), (128, 256), (299, 300)):
        part = torch.full((2, end - begin, 140), 7.0)
        assert torch.equal(upcast_block_scaled(weight[:, begin:end], scale, part, first_row=begin), whole[:, begin:end])

"""The scale of a stored weight as kernels take it: F32, with the grid row of each row of codes where they do not begin at a block."""

from __future__ import annotations

import pytest
import torch
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight, RowStoredWeight


def codes(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.uint8).view(torch.float8_e4m3fn)


def counted(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Scales that are all different, and exact in each dtype."""
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).view(shape).to(dtype)


def stack(held: bool, first_row: int | None) -> BlockStoredWeight:
    """Three matrices of 130 rows; with `held` they have kept the scale for kernels, as a move to a GPU leaves them."""
    grid = 2 if first_row is None else 3
    unit = BlockStoredWeight(codes(3, 130, 200), counted(3, grid, 2, dtype=torch.bfloat16), first_row)
    if held:
        unit._kernel_scale = unit.kernel_scale()
    return unit


@pytest.mark.parametrize("first_row", [None, 200])
@pytest.mark.parametrize("held", [False, True])
def test_an_expert_of_a_stack_has_its_own_scale_and_the_rows_of_every_expert(held: bool, first_row: int | None) -> None:
    unit = stack(held, first_row)
    for expert in range(3):
        scale, rows = unit.matrix(expert).kernel_scale()
        assert scale.dtype is torch.float32
        assert torch.equal(scale, unit.scale[expert].float())
        if first_row is None:
            assert rows is None
        else:
            assert rows is not None
            assert rows.dtype is torch.int32
            assert rows.tolist() == [(200 + row) // 128 for row in range(130)]


def test_what_was_kept_for_a_stack_is_not_made_again_for_its_experts() -> None:
    unit = stack(True, 200)
    kept = unit.kernel_scale()
    scale, rows = unit.matrix(2).kernel_scale()
    assert scale.data_ptr() == kept[0][2].data_ptr()
    assert rows is kept[1]


def test_rows_and_units_that_begin_at_a_block_have_no_rows_of_a_grid() -> None:
    for unit in (RowStoredWeight(codes(5, 16), counted(5)), BlockStoredWeight(codes(5, 16), counted(1, 1), first_row=0)):
        scale, rows = unit.kernel_scale()
        assert torch.equal(scale, unit.scale)
        assert rows is None

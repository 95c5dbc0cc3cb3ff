"""w8a32 has a specified order: the same bits as a scalar loop, whatever the schedule, the grid or the way memory is read."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensorhub_cuda.catalog import kernel

from tests.kernels.emulator.emulator import Options, product_emulator
from tests.kernels.support.battery import underflowing_case
from tests.kernels.support.linear_cases import launch_linear, make_case, scale_of_each_weight
from tests.kernels.support.scalar_order import scalar_result

SCHEDULES = [Options(schedule="forward"), Options(schedule="reverse"), Options(schedule="random"), Options(numerics="hardware")]

CASES = {
    "tails of m, n and k": {"m": 37, "n": 131, "k": 301},
    "whole tiles": {"m": 32, "n": 64, "k": 256},
    "fewer than a step": {"m": 1, "n": 1, "k": 5},
    "members": {"m": 3, "n": 200, "k": 260, "members": [70, 1, 129]},
    "row grid and bias": {"m": 9, "n": 70, "k": 385, "grid": "row", "bias": True},
    "strided, aligned": {"m": 33, "n": 66, "k": 144, "weight_padding": 16, "x_padding": 4},
    "strided, not aligned": {
        "m": 33,
        "n": 66,
        "k": 144,
        "weight_padding": 3,
        "weight_offset": 1,
        "x_padding": 1,
        "x_offset": 1,
        "bias": True,
    },
}


@pytest.mark.parametrize("shape", CASES.values(), ids=CASES)
def test_bits_of_a_scalar_loop_under_every_schedule(shape: dict[str, Any]) -> None:
    case = make_case(7, **shape, x_dtype=np.float32)
    expected = scalar_result(case).view(np.uint32)
    for seed, options in enumerate(SCHEDULES):
        y = launch_linear(product_emulator(), kernel("block_fp8_w8a32_tile"), case, options=options, seed=seed)
        assert np.array_equal(y.view(np.uint32), expected), options


def test_signs_of_zero_are_those_of_the_loop() -> None:
    """Positions past the end of k are left out, not multiplied as zeros: that would turn the -0 of an underflow into +0."""
    case = underflowing_case()
    expected = scalar_result(case)
    assert np.signbit(expected).all()
    assert not expected.any()
    y = launch_linear(product_emulator(), kernel("block_fp8_w8a32_tile"), case)
    assert np.array_equal(y.view(np.uint32), expected.view(np.uint32))


def test_another_order_has_other_bits() -> None:
    """The control: numpy's own float32 sums differ in some bits, so equality above says something about order."""
    case = make_case(7, 37, 131, 301, x_dtype=np.float32)
    weight = case.weight.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.repeat(scale_of_each_weight(case), 128, axis=1)[:, :301]
    assert not np.array_equal((case.x @ weight.T).view(np.uint32), scalar_result(case).view(np.uint32))

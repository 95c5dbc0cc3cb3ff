"""Offsets past 2^31 and 2^32, of each operand: strides that long over memory that is not there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensorhub_cuda.catalog import KERNELS, Kernel, kernel

from tests.kernels.emulator.emulator import grid_of, product_emulator
from tests.kernels.support.battery import FAR, check_far_results
from tests.kernels.support.linear_cases import (
    LinearCase,
    aligned_array,
    dequantize,
    error_of,
    exact_products,
    launch_linear,
    make_case,
    quantize,
)
from tests.kernels.support.sparse_memory import sparse_array

MATRIX_KERNELS = [each for each in KERNELS if each.compute != "quantize"]


def by_name(each: Kernel) -> str:
    return each.name


def x_dtype(chosen: Kernel) -> Any:
    return np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16


def run(chosen: Kernel, case: LinearCase) -> tuple[Any, Any]:
    """Return y and its reference; w8a8 takes the codes of the case's x."""
    emulator = product_emulator()
    if chosen.compute != "w8a8":
        return launch_linear(emulator, chosen, case), exact_products(case)
    codes, scale = quantize(emulator, case.x)
    far_codes = sparse_array(codes.shape, np.uint8, pitch=FAR)
    far_codes[:] = codes
    return launch_linear(emulator, chosen, case, x=far_codes, x_scale=scale), exact_products(case, dequantize(codes, scale))


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_rows_of_weight_and_x_far_apart(chosen: Kernel) -> None:
    """Three rows already pass 2^32 elements."""
    case = make_case(4, 3, 5, 144, x_dtype=x_dtype(chosen))
    near, _ = run(chosen, case)
    for name in ("weight", "x"):
        array = getattr(case, name)
        far = sparse_array(array.shape, array.dtype, pitch=FAR)
        far[:] = array
        setattr(case, name, far)
    y, products = run(chosen, case)
    assert np.array_equal(y, near)
    assert error_of(y, products) <= 1e-6


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_results_and_scales_far_apart(chosen: Kernel) -> None:
    check_far_results(product_emulator(), chosen, product_emulator())


def test_activations_far_apart_are_quantized() -> None:
    x = aligned_array((5, 200), ml_dtypes.bfloat16)
    x[:] = np.random.default_rng(1).standard_normal((5, 200)).astype(ml_dtypes.bfloat16)
    far = sparse_array(x.shape, x.dtype, pitch=FAR)
    far[:] = x
    for near_result, far_result in zip(quantize(product_emulator(), x), quantize(product_emulator(), far), strict=True):
        assert np.array_equal(near_result, far_result)


def test_codes_far_apart_are_written() -> None:
    """2^30 + 16 columns, the last group of them: codes pass 2^31 at the third token."""
    m, k = 5, 2**30 + 16
    x = sparse_array((m, k), ml_dtypes.bfloat16)
    x[:, -16:] = np.random.default_rng(1).standard_normal((m, 16)).astype(ml_dtypes.bfloat16)
    groups = k // 128 + 1
    codes, scale = sparse_array((m, k), np.uint8), sparse_array((m, groups), np.float32)
    chosen = kernel("quantize_activations")
    blocks = [(groups - 1, 0), (groups - 1, 1)]
    product_emulator().launch(chosen, grid_of(chosen, m, k), [x, codes, scale, k, m, k], blocks=blocks)
    near = aligned_array((m, 16), ml_dtypes.bfloat16)
    near[:] = x[:, -16:]
    expected_codes, expected_scale = quantize(product_emulator(), near)
    assert np.array_equal(codes[:, -16:], expected_codes)
    assert np.array_equal(scale[:, -1:], expected_scale)

"""Every kernel against float64, over random shapes with every kind of tail, origin, grid, stride and offset."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorhub_cuda.catalog import KERNELS, Kernel, kernel

from tests.kernels.emulator.emulator import Options, product_emulator
from tests.kernels.support.linear_cases import LinearCase, dequantize, error_of, exact_products, launch_linear, make_case, quantize

MATRIX_KERNELS = [each for each in KERNELS if each.compute != "quantize"]

#: Relative to the sum of the magnitudes of each result's own terms. A sum of 128 on the ordinary units rounds 128 times.
LIMIT = {"w8a16": 1e-6, "w8a8": 1e-6, "w8a32": 2e-6}

TOKENS = st.one_of(st.sampled_from([1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65]), st.integers(1, 80))
ROWS = st.one_of(st.sampled_from([1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257]), st.integers(1, 280))
COLUMNS = st.one_of(st.sampled_from([1, 3, 15, 16, 17, 31, 32, 127, 128, 129, 255, 256, 257, 513]), st.integers(1, 560))


def by_name(each: Kernel) -> str:
    return each.name


@st.composite
def cases(draw: st.DrawFn, chosen: Kernel) -> LinearCase:
    """Operands that a kernel takes: any at all, or aligned ones."""
    unit = 16 if chosen.needs_alignment else 1
    m, n, k = draw(TOKENS), draw(ROWS), draw(COLUMNS)
    if m * n > 6000:  # a bound on the time of an example, that keeps either long
        m = max(1, 6000 // n)
    k = -(-k // unit) * unit
    members = draw(st.none() | st.lists(st.integers(1, n), min_size=1, max_size=3))
    if members is not None:
        members = [each for each in members if each < n]
        while sum(members) > n:
            members.pop()
        members = [*members, n - sum(members)] if sum(members) < n else members
    return make_case(
        draw(st.integers(0, 2**32 - 1)),
        m,
        n,
        k,
        x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16,
        grid="block" if members else draw(st.sampled_from(["block", "row"])),
        members=members,
        bias=draw(st.booleans()),
        weight_padding=unit * draw(st.sampled_from([0, 0, 1, 5, 16])),
        weight_offset=unit * draw(st.sampled_from([0, 0, 1, 3])),
        x_padding=unit * draw(st.sampled_from([0, 0, 1, 7, 8])),
        x_offset=unit * draw(st.sampled_from([0, 0, 1, 3])),
    )


def result_and_reference(chosen: Kernel, case: LinearCase, options: Options = Options(keep_f32=True)) -> tuple[Any, Any]:  # noqa: B008
    """Run a kernel. The reference of w8a8 starts from its own quantized activations: their error is another test's."""
    emulator = product_emulator()
    if chosen.compute == "w8a8":
        codes, scale = quantize(emulator, case.x)
        return launch_linear(emulator, chosen, case, x=codes, x_scale=scale, options=options), exact_products(
            case, dequantize(codes, scale)
        )
    return launch_linear(emulator, chosen, case, options=options), exact_products(case)


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_any_shape_equals_float64(chosen: Kernel) -> None:
    """F32 results, before any rounding to BF16: 1e-6, by norm and result for result."""

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(cases(chosen))
    def agree(case: LinearCase) -> None:
        y, products = result_and_reference(chosen, case)
        assert error_of(y, products) <= LIMIT[chosen.compute]
        if y.size >= 64:  # fewer results may all have cancelled
            assert np.linalg.norm(y - products.values) <= 1e-6 * np.linalg.norm(products.values)

    agree()


@pytest.mark.parametrize("chosen", [each for each in MATRIX_KERNELS if each.compute != "w8a32"], ids=by_name)
@pytest.mark.parametrize("bias", [False, True])
def test_output_is_the_f32_sum_rounded_once_to_nearest_even(chosen: Kernel, bias: bool) -> None:
    case = make_case(5, 19, 150, 272, bias=bias)
    sums, products = result_and_reference(chosen, case)
    y, _ = result_and_reference(chosen, case, Options())
    assert error_of(sums, products) <= 1e-6
    assert np.array_equal(y.view(np.uint16), sums.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_every_code_is_exact(chosen: Kernel) -> None:
    """One token that is 1 at one k and 0 elsewhere reads the weight out: each finite code, times its scale, rounded once."""
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F] + [0x38, 0xB8], np.uint8)
    case = make_case(0, 16, 256, 128, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16)
    case.weight[:] = 0
    case.weight[:, 77] = codes
    case.x[:] = 0
    case.x[:, 77] = np.arange(1, 17)
    y, _ = result_and_reference(chosen, case)
    weight = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    scale = np.repeat(case.scale[:, 0], 128)
    if chosen.compute == "w8a8":
        x_codes, x_scale = quantize(product_emulator(), case.x)
        read = x_codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)[:, 77:78] * weight * (x_scale * scale)
    else:
        read = case.x.astype(np.float32)[:, 77:78] * weight * scale
    assert np.array_equal(y, read)


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_scale_meets_the_sum_not_the_weight(chosen: Kernel) -> None:
    """Weight times scale is not rounded to BF16 on the way: the error of that is a thousand times the limit."""
    case = make_case(11, 9, 70, 256, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16)
    y, products = result_and_reference(chosen, case)
    assert error_of(y, products) <= 1e-6
    rounded = case.weight.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.repeat(case.scale, 128, axis=1)[np.arange(70) // 128]
    rounded = rounded.astype(ml_dtypes.bfloat16).astype(np.float64)
    x = dequantize(*quantize(product_emulator(), case.x)) if chosen.compute == "w8a8" else case.x.astype(np.float64)
    assert error_of((x @ rounded.T).astype(np.float32), products) > 1e-4


@pytest.mark.parametrize("exponent", [-80, 100])
@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_small_and_large_scales_keep_their_precision(chosen: Kernel, exponent: int) -> None:
    case = make_case(3, 5, 40, 160, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16)
    case.scale[:] = np.ldexp(case.scale, exponent)
    y, products = result_and_reference(chosen, case)
    assert error_of(y, products) <= LIMIT[chosen.compute]


def test_a_token_with_infinity_or_nan_does_not_reach_others() -> None:
    for chosen in MATRIX_KERNELS:
        case = make_case(3, 20, 40, 144, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16)
        clean, _ = result_and_reference(chosen, case)
        case.x[3, 100] = np.inf
        case.x[17, 5] = np.nan
        y, _ = result_and_reference(chosen, case)
        others = [token for token in range(20) if token not in (3, 17)]
        assert np.array_equal(y[others], clean[others]), chosen.name
        assert not np.isfinite(y[17]).any(), chosen.name


def test_the_limit_is_one_that_a_wrong_scale_exceeds() -> None:
    """The control of this file: a case whose scales are those of the next block is far outside."""
    chosen = kernel("block_fp8_w8a16_tile")
    case = make_case(1, 5, 140, 256)
    y, products = result_and_reference(chosen, case)
    assert error_of(y, products) <= 1e-6
    case.scale[:] = np.roll(case.scale, 1, axis=1)
    assert error_of(y, exact_products(case)) > 1e-3


@pytest.mark.parametrize("side", [128, 144, 256])
@pytest.mark.parametrize("grid", ["block", "row"])
@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_a_square_weight_is_not_turned_round(chosen: Kernel, grid: Literal["block", "row"], side: int) -> None:
    """Where n is k and both grids have one shape, nothing but the contract says which way they lie."""
    dtype = np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16
    case = make_case(7, 5, side, side, x_dtype=dtype, grid=grid)
    y, products = result_and_reference(chosen, case)
    assert error_of(y, products) <= LIMIT[chosen.compute]
    for turned in (
        attrs.evolve(case, weight=np.ascontiguousarray(case.weight.T)),
        attrs.evolve(case, scale=np.ascontiguousarray(case.scale.T) if grid == "block" else case.scale[::-1].copy()),
    ):
        if not np.array_equal(turned.scale, case.scale) or not np.array_equal(turned.weight, case.weight):
            assert error_of(y, exact_products(turned)) > 1e-3, "the control: it would be seen"

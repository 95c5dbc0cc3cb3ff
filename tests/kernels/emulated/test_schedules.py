"""A result does not depend on which thread runs first, when a copy arrives, or (within a bound) how a matrix unit adds."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from tensorhub_cuda.catalog import KERNELS, Kernel

from tests.kernels.emulator.emulator import SCHEDULES, Options, product_emulator
from tests.kernels.support.linear_cases import LinearCase, dequantize, error_of, exact_products, launch_linear, make_case, quantize

MATRIX_KERNELS = [each for each in KERNELS if each.compute != "quantize"]
ON_MATRIX_UNITS = [each for each in MATRIX_KERNELS if each.compute != "w8a32"]


def by_name(each: Kernel) -> str:
    return each.name


def case_of(chosen: Kernel) -> LinearCase:
    """Five blocks of k, so that a ring of three stages goes round; tails of m, n and k."""
    return make_case(
        21, 21, 150, 624, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16, members=[37, 113], bias=True
    )


@pytest.mark.parametrize("chosen", MATRIX_KERNELS, ids=by_name)
def test_every_schedule_and_time_of_copies_gives_the_same_bits(chosen: Kernel) -> None:
    case = case_of(chosen)
    emulator = product_emulator()
    operands = dict(zip(("x", "x_scale"), quantize(emulator, case.x), strict=True)) if chosen.compute == "w8a8" else {}
    results = [
        launch_linear(emulator, chosen, case, **operands, seed=seed, options=Options(schedule=schedule, lazy_copies=lazy, keep_f32=True))
        for seed, (schedule, lazy) in enumerate([*itertools.product(SCHEDULES, (False, True)), ("random", True)])
    ]
    assert np.isfinite(results[0]).all()
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint32), results[0].view(np.uint32))


@pytest.mark.parametrize(("fraction_bits", "products", "limit"), [(25, 16, 2e-6), (24, 8, 3e-6), (13, 32, 2e-3)])
@pytest.mark.parametrize("chosen", ON_MATRIX_UNITS, ids=by_name)
def test_a_matrix_unit_that_cuts_stays_within_its_bound(chosen: Kernel, fraction_bits: int, products: int, limit: float) -> None:
    """Sums aligned to their largest term and cut: 25 and 24 bits as models of BF16 units have them, 13 as of some e4m3 ones.

    An accumulator starts anew at each block of 128, so the bound does not grow with k.
    """
    case = case_of(chosen)
    emulator = product_emulator()
    exact_x, operands = None, {}
    if chosen.compute == "w8a8":
        codes, scale = quantize(emulator, case.x)
        exact_x, operands = dequantize(codes, scale), {"x": codes, "x_scale": scale}
    options = Options(numerics="hardware", fraction_bits=fraction_bits, products=products, keep_f32=True)
    y = launch_linear(emulator, chosen, case, **operands, options=options)
    error = error_of(y, exact_products(case, exact_x))
    print(f"{chosen.name}: {error:.1e} with {fraction_bits} bits")
    assert error <= limit
    exact = launch_linear(emulator, chosen, case, **operands)
    assert not np.array_equal(y, exact), "the numerics of hardware made no difference: they were not used"

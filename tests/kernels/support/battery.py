"""What a kernel has to pass, in a second: few cases, chosen so that each kind of fault shows in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from tensorhub_cuda.catalog import Kernel

from tests.kernels.emulator.emulator import Emulator, Options, grid_of
from tests.kernels.support.linear_cases import (
    LinearCase,
    activations_at_ties,
    dequantize,
    error_of,
    exact_products,
    launch_linear,
    make_case,
    quantize,
)
from tests.kernels.support.scalar_order import scalar_result
from tests.kernels.support.sparse_memory import sparse_array

FAR = 2**31 + 4096
_SCHEDULES = (
    Options(keep_f32=True),
    Options(keep_f32=True, schedule="reverse", lazy_copies=True),
    Options(keep_f32=True, schedule="random", lazy_copies=True),
)


def check_kernel(emulator: Emulator, chosen: Kernel, quantizing: Emulator) -> None:
    """Raise AssertionError or EmulatorError at the first thing that is wrong. `quantizing` makes the activations of w8a8."""
    if chosen.compute == "quantize":
        _check_quantization(emulator, chosen)
        return
    for index, case in enumerate(_cases(chosen)):
        _check_linear(emulator, chosen, case, quantizing, _SCHEDULES[index % len(_SCHEDULES)])
    if chosen.compute == "w8a32":
        _check_underflow(emulator, chosen)
    check_far_results(emulator, chosen, quantizing)


def _cases(chosen: Kernel) -> Iterator[LinearCase]:
    """Tails with members, a row grid with strides, rows far apart; rows that begin anywhere, for a kernel that takes them."""
    dtype: Any = np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16
    yield make_case(1, 5, 37, 656, x_dtype=dtype, members=[20, 17], bias=True)
    yield make_case(2, 21, 133, 144, x_dtype=dtype, grid="row", weight_padding=32, x_padding=16)
    yield make_case(3, 2, 150, 400, x_dtype=dtype, members=[1, 149])
    if not chosen.needs_alignment:
        yield make_case(4, 9, 18, 301, x_dtype=dtype, bias=True, weight_padding=3, x_padding=1)
        yield make_case(5, 3, 18, 149, x_dtype=dtype, weight_padding=11, weight_offset=5, x_padding=3, x_offset=1)
    far = make_case(6, 3, 5, 144, x_dtype=dtype)
    for name in ("weight", "x"):
        near = getattr(far, name)
        setattr(far, name, sparse_array(near.shape, near.dtype, pitch=FAR))
        getattr(far, name)[:] = near
    yield far


def _check_linear(emulator: Emulator, chosen: Kernel, case: LinearCase, quantizing: Emulator, options: Options) -> None:
    exact_x, operands = None, {}
    if chosen.compute == "w8a8":
        codes, scale = quantize(quantizing, case.x)
        exact_x, operands = dequantize(codes, scale), {"x": codes, "x_scale": scale}
    y = launch_linear(emulator, chosen, case, **operands, options=options, seed=case.n)
    assert error_of(y, exact_products(case, exact_x)) <= 2e-6
    if chosen.compute == "w8a32":
        assert np.array_equal(y.view(np.uint32), scalar_result(case).view(np.uint32))


def underflowing_case() -> LinearCase:
    """Two blocks, the second one short, whose parts underflow to -0: a position past k that is multiplied as zero makes it +0."""
    case = make_case(7, 4, 8, 133, x_dtype=np.float32)
    case.x[:] = -1e-45
    case.weight[:] = 0x01
    case.weight[:, 0] = 0x38  # 1: the first part is the smallest subnormal, which its scale makes -0
    case.scale[:] = 1e-3
    return case


def _check_underflow(emulator: Emulator, chosen: Kernel) -> None:
    case = underflowing_case()
    assert np.array_equal(launch_linear(emulator, chosen, case).view(np.uint32), scalar_result(case).view(np.uint32))


def check_far_results(emulator: Emulator, chosen: Kernel, quantizing: Emulator) -> None:
    """The last tile of 2^30 + 3 rows of weight: y passes 2^31 at the third token, weight 2^34 bytes, row scales 2^32."""
    n, k, m = 2**30 + 3, 16, 5
    tail = make_case(9, m, 3, k, x_dtype=np.float32 if chosen.compute == "w8a32" else ml_dtypes.bfloat16, grid="row", bias=True)
    assert tail.bias is not None
    weight, scale, bias = (sparse_array((n, *each.shape[1:]), each.dtype) for each in (tail.weight, tail.scale, tail.bias))
    weight[-3:], scale[-3:], bias[-3:] = tail.weight, tail.scale, tail.bias
    x, x_scale, exact_x = tail.x, None, None
    if chosen.compute == "w8a8":
        x, x_scale = quantize(quantizing, tail.x)
        exact_x = dequantize(x, x_scale)
    y = sparse_array((m, n), np.float32)
    emulator.launch(
        chosen,
        grid_of(chosen, m, n),
        [weight, scale, None, x, x_scale, bias, y, k, x.strides[0] // x.itemsize, m, n, k, 1, 0, 0],
        options=Options(keep_f32=True),
        blocks=[((n - 1) // chosen.tile_n, 0)],
    )
    assert error_of(y[:, -3:], exact_products(tail, exact_x)) <= 2e-6


def _check_quantization(emulator: Emulator, chosen: Kernel) -> None:
    x = make_case(5, 7, 1, 397, x_padding=3).x
    x[2, :128] = 0
    x[3, 100:228] = -np.abs(x[3, 100:228])
    far = sparse_array(x.shape, x.dtype, pitch=FAR)
    far[:] = x
    for activations in (x, far, activations_at_ties()):
        m, k = activations.shape
        codes, scale = quantize(emulator, activations, chosen=chosen)
        grouped = np.zeros((m, -(-k // 128), 128), np.float32)
        grouped.reshape(m, -1)[:, :k] = activations
        expected_scale = np.maximum(np.abs(grouped).max(axis=2), np.float32(1e-12)) / np.float32(448)
        expected = np.clip(grouped / expected_scale[..., None], -448, 448).astype(ml_dtypes.float8_e4m3fn)
        assert np.array_equal(scale, expected_scale)
        assert np.array_equal(codes, expected.view(np.uint8).reshape(m, -1)[:, :k])

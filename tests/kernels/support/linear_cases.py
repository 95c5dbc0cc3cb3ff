"""Inputs of the matrix kernels, and what float64 makes of them with a decoder that is not the kernels' own (ml_dtypes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import attrs
import ml_dtypes
import numpy as np
from tensorhub_cuda.catalog import Kernel, kernel

from tests.kernels.emulator.emulator import Emulator, Options, grid_of

Array = np.ndarray[Any, Any]

FINITE_CODES = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
SUBNORMAL_CODES = FINITE_CODES[(FINITE_CODES & 0x78) == 0]  # and both zeros
QUANTIZE = kernel("quantize_activations")
_BASE = 256  # bytes that every array's buffer is aligned to, before an offset


@attrs.define
class LinearCase:
    """The operands of one product. `weight` and `x` may be rows of a wider array, or begin in the middle of one."""

    weight: Array  # uint8 [n, k]
    scale: Array  # float32 [rows of the grid, columns]
    scale_rows: Array | None  # int32 [n]
    x: Array  # bfloat16 or float32 [m, k]
    bias: Array | None
    grid: Literal["block", "row"]

    @property
    def m(self) -> int:
        """Tokens."""
        return int(self.x.shape[0])

    @property
    def n(self) -> int:
        """Rows of weight."""
        return int(self.weight.shape[0])

    @property
    def k(self) -> int:
        """Columns of weight."""
        return int(self.weight.shape[1])


@attrs.define
class Products:
    """float64 [m, n]: the exact results, and for each the sum of its terms' magnitudes, which an error is measured by."""

    values: Array
    magnitudes: Array


def aligned_array(shape: Sequence[int], dtype: Any, *, offset: int = 0, padding: int = 0) -> Array:
    """Return an array whose rows are `padding` elements apart and which begins `offset` elements past an aligned address.

    Everything is filled with bytes 0xFF, which are NaN as a code, as BF16 and as F32.
    """
    item = np.dtype(dtype).itemsize
    pitch = shape[-1] + padding
    rows = math.prod(shape[:-1])
    buffer = np.full(_BASE + (offset + rows * pitch) * item, 0xFF, np.uint8)
    start = -buffer.ctypes.data % _BASE + offset * item
    flat = buffer[start : start + rows * pitch * item].view(dtype)
    return flat.reshape(*shape[:-1], pitch)[..., : shape[-1]]


def make_case(
    seed: int,
    m: int,
    n: int,
    k: int,
    *,
    x_dtype: Any = ml_dtypes.bfloat16,
    grid: Literal["block", "row"] = "block",
    members: Sequence[int] | None = None,
    bias: bool = False,
    weight_padding: int = 0,
    weight_offset: int = 0,
    x_padding: int = 0,
    x_offset: int = 0,
) -> LinearCase:
    """Return random operands. `members` are the rows of tensors put together, each with its own origin of blocks.

    All scales are different. Rows of weight are of several kinds: every code, only subnormal ones and zeros, only large ones.
    """
    random = np.random.default_rng(seed)
    weight = aligned_array((n, k), np.uint8, offset=weight_offset, padding=weight_padding)
    weight[:] = random.choice(FINITE_CODES, (n, k))
    kinds = random.integers(0, 4, n)
    weight[kinds == 1] = random.choice(SUBNORMAL_CODES, (int((kinds == 1).sum()), k))
    weight[kinds == 2] = random.choice(np.array([0x7E, 0xFE, 0x38, 0xB0, 0x00, 0x80], np.uint8), (int((kinds == 2).sum()), k))
    x = aligned_array((m, k), x_dtype, offset=x_offset, padding=x_padding)
    x[:] = (random.standard_normal((m, k)) * np.exp(random.standard_normal((m, 1)))).astype(x_dtype)
    scale_rows = None
    rows, columns = (n, 1) if grid == "row" else (-(-n // 128), -(-k // 128))
    if members is not None:
        assert sum(members) == n
        scale_rows = aligned_array((n,), np.int32)
        first, rows = 0, 0
        for member in members:
            scale_rows[first : first + member] = rows + np.arange(member) // 128
            first, rows = first + member, rows + -(-member // 128)
        scale_rows[:] = random.permutation(rows).astype(np.int32)[scale_rows]  # in no order at all
    scale = aligned_array((rows, columns), np.float32)
    scale[:] = np.exp(random.standard_normal((rows, columns)) * 2) * 1e-3
    bias_dtype = np.float32 if x_dtype == np.float32 else ml_dtypes.bfloat16
    bias_array = None
    if bias:
        bias_array = aligned_array((n,), bias_dtype, offset=1)
        bias_array[:] = (random.standard_normal(n) * 3).astype(bias_dtype)
    return LinearCase(weight, scale, scale_rows, x, bias_array, grid)


def scale_of_each_weight(case: LinearCase) -> Array:
    """Return float32 [n, blocks of k]: the scale of each row's blocks, by the definition of the grids."""
    blocks = -(-case.k // 128)
    if case.grid == "row":
        return np.repeat(case.scale, blocks, axis=1)
    rows = np.arange(case.n) // 128 if case.scale_rows is None else case.scale_rows
    return np.asarray(case.scale[rows])


def exact_products(case: LinearCase, x: Array | None = None) -> Products:
    """Return what float64 makes of a case; `x` stands for the case's own, float64 [m, k]."""
    decoded = case.weight.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    weight = decoded * np.repeat(scale_of_each_weight(case).astype(np.float64), 128, axis=1)[:, : case.k]
    activations = case.x.astype(np.float64) if x is None else x
    bias = np.zeros(case.n) if case.bias is None else case.bias.astype(np.float64)
    with np.errstate(invalid="ignore"):  # a case may hold infinity
        return Products(activations @ weight.T + bias, np.abs(activations) @ np.abs(weight).T + np.abs(bias))


def error_of(y: Array, products: Products) -> float:
    """Return the largest error of y, in magnitudes of the terms of its own sum; NaN or infinity if y has one."""
    difference = np.abs(y.astype(np.float64) - products.values)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(difference == 0, 0.0, difference / products.magnitudes)
    return float(relative.max()) if relative.size else 0.0


def launch_linear(
    emulator: Emulator,
    chosen: Kernel,
    case: LinearCase,
    *,
    x: Array | None = None,
    x_scale: Array | None = None,
    options: Options = Options(keep_f32=True),  # noqa: B008 (frozen)
    seed: int = 0,
    blocks: Sequence[tuple[int, int]] = (),
) -> Array:
    """Return y of a kernel, of whatever dtype the options say. `x` stands for the case's own."""
    activations = case.x if x is None else x
    f32 = chosen.compute == "w8a32" or options.keep_f32
    y = aligned_array((case.m, case.n), np.float32 if f32 else ml_dtypes.bfloat16)
    emulator.launch(
        chosen,
        grid_of(chosen, case.m, case.n),
        [
            *(case.weight, case.scale, case.scale_rows, activations, x_scale, case.bias, y),
            *(case.weight.strides[0], activations.strides[0] // activations.itemsize, case.m, case.n, case.k),
            *(case.scale.shape[1], 7 if case.grid == "block" else 0, 1 if case.grid == "block" else 0),
        ],
        seed=seed,
        options=options,
        blocks=blocks,
    )
    return y


def quantize(
    emulator: Emulator,
    x: Array,
    *,
    chosen: Kernel = QUANTIZE,
    options: Options = Options(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> tuple[Array, Array]:
    """Return codes uint8 [m, k] and scales float32 [m, ceil(k / 128)] that the kernel makes of BF16 activations."""
    m, k = x.shape
    codes = aligned_array((m, k), np.uint8)
    scale = aligned_array((m, -(-k // 128)), np.float32)
    emulator.launch(chosen, grid_of(chosen, m, k), [x, codes, scale, x.strides[0] // x.itemsize, m, k], seed=seed, options=options)
    return codes, scale


def activations_at_ties() -> Array:
    """Return bfloat16 [5, 128]: activations whose quotient by their group's scale lies between two codes.

    An odd number of five bits, times a power of two, is such a middle; times the largest / 448 it is the activation, where BF16 has
    it. The scales are inexact, so that a product with their reciprocals misses the middle that a division finds.
    """
    x = aligned_array((5, 128), ml_dtypes.bfloat16)
    for row, largest in enumerate((138, 152, 166, 196, 252)):
        middles = np.array([odd * 2.0**exponent for odd in range(17, 32, 2) for exponent in range(-9, 4)])
        values = middles * largest / 448
        values = values[values == values.astype(ml_dtypes.bfloat16).astype(np.float64)]
        assert values.size
        x[row] = (np.resize(np.repeat(values, 4), 128) * (-1) ** row).astype(ml_dtypes.bfloat16)
        x[row, 127] = largest
    return x


def dequantize(codes: Array, scale: Array) -> Array:
    """Return float64 [m, k]: the activations that codes and scales stand for."""
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    with np.errstate(invalid="ignore"):  # so may codes
        return np.asarray(values * np.repeat(scale.astype(np.float64), 128, axis=1)[:, : codes.shape[1]])

"""Conversions, and the layouts of matrix instructions, against ml_dtypes and numpy: every code, every BF16, every tie."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.emulator.emulator import Emulator
from tests.kernels.emulator.small_kernels import build_small, run_small
from tests.kernels.support.linear_cases import FINITE_CODES, aligned_array

SOURCE = r"""
KERNEL(32) decode_f32(const u8* codes, float* values) {
  int i = blockIdx.x * 32 + threadIdx.x;
  store_f32(values + i, e4m3_to_f32(load_u8(codes + i)));
}

KERNEL(32) decode_bf16(const u32* codes, u32* pairs) {
  int i = blockIdx.x * 32 + threadIdx.x;
  u32 first, second;
  e4m3x4_to_bf16x4((u32)load_i32((const int*)codes + i), first, second);
  store_u32(pairs + 2 * i, first);
  store_u32(pairs + 2 * i + 1, second);
}

KERNEL(32) encode(const float* values, u32* codes) {
  int i = blockIdx.x * 32 + threadIdx.x;
  const float* four = values + 4 * i;
  store_u32(codes + i, f32x4_to_e4m3x4(load_f32(four), load_f32(four + 1), load_f32(four + 2), load_f32(four + 3)));
}

KERNEL(32) round_bf16(const float* values, u16* rounded) {
  int i = blockIdx.x * 32 + threadIdx.x;
  store_rounded_to_bf16(rounded, i, load_f32(values + i));
}

KERNEL(32) multiply_bf16(const u32* operands, float* d) {
  u32 r[6];
  float sum[4];
  for (int i = 0; i < 6; i++) r[i] = (u32)load_i32((const int*)operands + threadIdx.x * 6 + i);
  for (int i = 0; i < 4; i++) sum[i] = (float)(threadIdx.x * 4 + i);
  mma_bf16_m16n8k16(sum, r[0], r[1], r[2], r[3], r[4], r[5]);
  for (int i = 0; i < 4; i++) store_f32(d + threadIdx.x * 4 + i, sum[i]);
}

KERNEL(32) multiply_e4m3(const u32* operands, float* d) {
  u32 r[6];
  float sum[4];
  for (int i = 0; i < 6; i++) r[i] = (u32)load_i32((const int*)operands + threadIdx.x * 6 + i);
  for (int i = 0; i < 4; i++) sum[i] = (float)(threadIdx.x * 4 + i);
  mma_e4m3_m16n8k32(sum, r[0], r[1], r[2], r[3], r[4], r[5]);
  for (int i = 0; i < 4; i++) store_f32(d + threadIdx.x * 4 + i, sum[i]);
}

KERNEL(32) shuffle(const float* x, float* y, int mask) {
  store_f32(y + threadIdx.x, shuffle_xor_f32(load_f32(x + threadIdx.x), mask));
}

KERNEL(32) permute(u32* y, int a, int b, int selector) {
  store_u32(y + threadIdx.x, byte_permute(a, b, selector));
}
"""


@functools.cache
def primitives() -> Emulator:
    return build_small(SOURCE)


def run(name: str, *args: Any, blocks: int = 1) -> None:
    run_small(primitives(), name, args, blocks=blocks)


def aligned_copy(values: Any) -> Any:
    copy = aligned_array(values.shape, values.dtype)
    copy[:] = values
    return copy


def test_every_code_to_f32() -> None:
    codes = aligned_copy(np.arange(256, dtype=np.uint8))
    values = aligned_array((256,), np.float32)
    run("decode_f32", codes, values, blocks=8)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    finite = ~np.isnan(expected)
    assert finite.sum() == 254
    assert np.array_equal(values[finite].view(np.uint32), expected[finite].view(np.uint32))  # signs of zero too
    assert np.isnan(values[~finite]).all()


def test_every_code_to_bf16_at_every_place_of_four() -> None:
    codes = aligned_copy(np.concatenate([np.roll(FINITE_CODES, shift) for shift in range(4)] + [np.zeros(8, np.uint8)]))
    pairs = aligned_array((codes.size // 2,), np.uint32)
    run("decode_bf16", codes.view(np.uint32), pairs, blocks=codes.size // 128)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(ml_dtypes.bfloat16)
    assert np.array_equal(pairs.view(np.uint16), expected.view(np.uint16))


def test_nan_codes_come_out_of_the_fast_decoding_as_480() -> None:
    """Why they are refused when a checkpoint is loaded."""
    codes = aligned_copy(np.tile(np.array([0x7F, 0xFF, 0x38, 0x00], np.uint8), 32))
    pairs = aligned_array((64,), np.uint32)
    run("decode_bf16", codes.view(np.uint32), pairs)
    assert pairs.view(ml_dtypes.bfloat16)[:4].astype(float).tolist() == [480.0, -480.0, 1.0, 0.0]


def f32_values() -> Any:
    """Values at, beside and between what a narrow format holds, of both signs."""
    magnitudes = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    ties = (magnitudes[1:] + magnitudes[:-1]) / 2
    random = np.random.default_rng(0)
    some = np.exp(random.standard_normal(4096) * 4).astype(np.float32)
    at = np.concatenate([magnitudes, ties, np.float32([448, 449, 463, 464, 465, 500, 1e6, 1e-20, 2**-10, 2**-11])])
    values = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(0)), some])
    values = np.concatenate([values, -values])
    return aligned_copy(np.resize(values, -(-values.size // 128) * 128))


def test_f32_to_codes_rounds_to_nearest_even_and_saturates() -> None:
    values = f32_values()
    codes = aligned_array((values.size // 4,), np.uint32)
    run("encode", values, codes, blocks=values.size // 128)
    expected = np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(codes.view(np.uint8), expected)


def test_f32_to_bf16_rounds_to_nearest_even() -> None:
    bits = np.arange(0, 0x7F80, 7, dtype=np.uint32) << 16
    values = np.concatenate([bits + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = np.concatenate([values, values | 0x80000000, np.array([0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)])
    values = aligned_copy(np.resize(values, -(-values.size // 32) * 32).astype(np.uint32).view(np.float32))
    rounded = aligned_array(values.shape, np.uint16)
    run("round_bf16", values, rounded, blocks=values.size // 32)
    assert np.array_equal(rounded, values.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("name", ["multiply_bf16", "multiply_e4m3"])
def test_where_a_matrix_instruction_finds_its_operands(name: str) -> None:
    """By the PTX manual's figures: a is [16, k], b [k, 8], each register of a lane holds neighbours in k."""
    k = 16 if name == "multiply_bf16" else 32
    each = k // 8
    random = np.random.default_rng(3)
    if k == 16:
        a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((16, k), (k, 8)))
    else:
        a, b = (random.choice(FINITE_CODES, shape).view(ml_dtypes.float8_e4m3fn) for shape in ((16, k), (k, 8)))
    operands = aligned_array((32, 6), np.uint32)
    for lane in range(32):
        group, member = divmod(lane, 4)
        near, far = slice(member * each, member * each + each), slice(k // 2 + member * each, k // 2 + member * each + each)
        registers = [a[group, near], a[group + 8, near], a[group, far], a[group + 8, far], b[near, group], b[far, group]]
        operands[lane] = [np.ascontiguousarray(register).view(np.uint32)[0] for register in registers]
    d = aligned_array((32, 4), np.float32)
    run(name, operands, d)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for lane in range(32):
        group, member = divmod(lane, 4)
        for i in range(4):
            element = expected[group + (i // 2) * 8, 2 * member + i % 2] + lane * 4 + i
            assert d[lane, i] == np.float32(element), (lane, i)


def test_a_shuffle_exchanges_lanes() -> None:
    x = aligned_copy(np.arange(32, dtype=np.float32))
    for mask in (1, 2, 16, 31):
        y = aligned_array((32,), np.float32)
        run("shuffle", x, y, mask)
        assert np.array_equal(y, np.arange(32) ^ mask)


def test_bytes_are_permuted() -> None:
    y = aligned_array((32,), np.uint32)
    run("permute", y, 0x33221100, 0x77665544, 0x7304)
    assert hex(y[0]) == "0x77330044"

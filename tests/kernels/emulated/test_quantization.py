"""quantize_activations gives the bits of torch's cast, and of its definition in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.kernels.emulator.emulator import SCHEDULES, Options, product_emulator
from tests.kernels.support.linear_cases import activations_at_ties, aligned_array, dequantize, make_case, quantize


def torch_quantization(x: Any) -> tuple[Any, Any]:
    """Return codes and scales by torch: max(amax, 1e-12) / 448, and a cast to float8_e4m3fn."""
    m, k = x.shape
    groups = -(-k // 128)
    padded = torch.zeros(m, groups * 128)
    padded[:, :k] = torch.from_numpy(np.ascontiguousarray(x).view(np.int16)).view(torch.bfloat16).float()
    grouped = padded.view(m, groups, 128)
    scale = grouped.abs().amax(-1).clamp(min=1e-12) / 448.0
    codes = (grouped / scale[..., None]).to(torch.float8_e4m3fn).view(torch.uint8).view(m, -1)[:, :k]
    return codes.numpy(), scale.numpy()


@pytest.mark.parametrize(("m", "k"), [(1, 16), (5, 128), (4, 144), (9, 400), (3, 97), (2, 130), (1, 1), (7, 3)])
@pytest.mark.parametrize(("offset", "padding"), [(0, 0), (1, 3), (4, 4)])
def test_bits_are_those_of_torch(m: int, k: int, offset: int, padding: int) -> None:
    x = make_case(m + k, m, 1, k, x_offset=offset, x_padding=padding).x
    x[0, : min(k, 4)] = np.array([448, 1e-9, -0.0, 3e-3], ml_dtypes.bfloat16)[: min(k, 4)]
    codes, scale = quantize(product_emulator(), x)
    expected_codes, expected_scale = torch_quantization(x)
    assert np.array_equal(scale.view(np.uint32), expected_scale.view(np.uint32))
    assert np.array_equal(codes, expected_codes)


def test_every_bf16_magnitude() -> None:
    """All finite BF16 values, each beside different neighbours: ties, subnormal codes, tiny and huge groups."""
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    finite = bits[(bits & 0x7F80) != 0x7F80]
    for seed in (0, 1):
        order = finite if seed == 0 else np.random.default_rng(seed).permutation(finite)
        x = aligned_array((len(order) // 512, 512), ml_dtypes.bfloat16)
        x[:] = order[: x.size].view(ml_dtypes.bfloat16).reshape(x.shape)
        codes, scale = quantize(product_emulator(), x)
        expected_codes, expected_scale = torch_quantization(x)
        assert np.array_equal(scale.view(np.uint32), expected_scale.view(np.uint32))
        assert np.array_equal(codes, expected_codes)


def test_quotients_between_two_codes_are_those_of_a_division() -> None:
    x = activations_at_ties()
    codes, scale = quantize(product_emulator(), x)
    expected_codes, expected_scale = torch_quantization(x)
    assert np.array_equal(scale, expected_scale)
    assert np.array_equal(codes, expected_codes)
    by_reciprocal = (x.astype(np.float32) * (np.float32(1) / scale)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert not np.array_equal(by_reciprocal, codes), "the case does not tell a division from a product with the reciprocal"


def test_a_group_of_zeros_is_zeros() -> None:
    x = aligned_array((2, 256), ml_dtypes.bfloat16)
    x[:] = 0
    x[1, 200] = -2
    codes, scale = quantize(product_emulator(), x)
    assert not codes[0].any()
    assert scale[0, 0] == np.float32(1e-12) / np.float32(448)
    assert codes[1, 200] == 0xFE
    assert scale[1, 1] == np.float32(2) / np.float32(448)


def test_activations_are_kept_to_a_code() -> None:
    """Half a unit in the last of 4 bits of the value, or of the smallest code times the scale."""
    x = make_case(2, 6, 1, 400).x
    codes, scale = quantize(product_emulator(), x)
    limit = np.maximum(np.abs(x.astype(np.float64)) * 2.0**-4, np.repeat(scale.astype(np.float64), 128, axis=1)[:, :400] * 2.0**-10)
    assert (np.abs(dequantize(codes, scale) - x.astype(np.float64)) <= limit * (1 + 1e-6)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_agree(schedule: Any) -> None:
    x = make_case(8, 6, 1, 300).x
    expected = torch_quantization(x)
    codes, scale = quantize(product_emulator(), x, options=Options(schedule=schedule), seed=3)
    assert np.array_equal(codes, expected[0])
    assert np.array_equal(scale, expected[1])

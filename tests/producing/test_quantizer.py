"""The quantizers against ml_dtypes and float64: every 16-bit value, every boundary between codes, every kind of odd block."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorhub_decoders.upcast.cutting as cutting
import torch
from tensorhub_decoders.converting.fp8_quantization import NotFiniteError, quantize_block_scaled, quantize_row_scaled, quantize_unscaled
from tensorhub_decoders.upcast.reference import dequantize_block_scaled, dequantize_row_scaled

from tests.support.conversions import bits, noise

Array = np.ndarray[Any, Any]
CODES = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
LEAST = np.float32(2.0**-149)
SHAPES = [(128, 128), (1, 1), (1, 300), (130, 257), (129, 1), (5, 3), (448, 384), (576, 200), (3, 130, 129), (2, 1, 128)]


def nearest_code(value: float) -> int:
    """Round a number to the nearest code in float64, ties to the even one, by looking at all of them."""
    magnitude = min(abs(value), 448.0)
    distances = np.abs(CODES[:127] - magnitude)
    best = np.flatnonzero(distances == distances.min())
    code = int(best[0] if len(best) == 1 else next(each for each in best if each % 2 == 0))
    return code | (0x80 if np.signbit(value) else 0)


def independent_codes(quotient: Array) -> Array:
    """Clamp and round with ml_dtypes."""
    return np.asarray(np.clip(quotient, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def independent_blocks(weight: torch.Tensor, rows: int, columns: int) -> tuple[Array, Array]:
    """Codes and scales of a matrix in numpy, one block after another."""
    values = weight.float().numpy()
    grid = (-(-values.shape[0] // rows), -(-values.shape[1] // columns))
    codes, scales = np.zeros(values.shape, np.uint8), np.zeros(grid, np.float32)
    for row in range(grid[0]):
        for column in range(grid[1]):
            place = np.s_[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
            largest = np.abs(values[place]).max()
            scales[row, column] = 1 if largest == 0 else max(np.float32(largest) / np.float32(448), LEAST)
            codes[place] = independent_codes(values[place] / scales[row, column])
    return codes, scales


@pytest.fixture(params=[1 << 20, 3000], ids=lambda elements: f"strips-{elements}", autouse=True)
def strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", request.param)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_value_is_rounded_as_ml_dtypes_and_float64_round_it(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", 1 << 14)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = every[every.isfinite()]
    assert len(finite) > 63_000
    found = quantize_unscaled(finite).view(torch.uint8).numpy()
    assert (found == independent_codes(finite.float().numpy())).all()
    assert not ((found & 0x7F) == 0x7F).any()
    sample = np.unique(np.linspace(0, len(finite) - 1, 1500, dtype=int))
    assert [nearest_code(float(finite[place])) for place in sample] == found[sample].tolist()


def test_every_boundary_between_codes_to_the_last_bit_of_f32() -> None:
    positive = CODES[:127]
    middles = ((positive[:-1] + positive[1:]) / 2).astype(np.float32)
    around = np.concatenate(
        [middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(1000)), positive.astype(np.float32)]
    )
    values = np.concatenate([around, -around, np.float32([448.0001, 464, 1e30, -3.4e38, 0.0, -0.0, 1e-45, -1e-45])])
    found = quantize_unscaled(torch.from_numpy(values)).view(torch.uint8).numpy()
    assert [nearest_code(float(value)) for value in values] == found.tolist()
    assert (found == independent_codes(values)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight = noise(*shape, dtype=dtype)
    before = weight.clone()
    codes, scale = quantize_block_scaled(weight)
    assert torch.equal(weight, before)  # the source is not worked in
    for matrix, its_codes, its_scale in zip(*(each.view(-1, *each.shape[-2:]) for each in (weight, codes, scale)), strict=True):
        expected_codes, expected_scale = independent_blocks(matrix, 128, 128)
        assert (its_scale.numpy() == expected_scale).all()
        assert (its_codes.view(torch.uint8).numpy() == expected_codes).all()
    # Each value comes back to within half a step of the codes at the top of its block.
    back = dequantize_block_scaled(codes, scale, out_dtype=torch.float32)
    step = scale.repeat_interleave(128, dim=-2)[..., : shape[-2], :].repeat_interleave(128, dim=-1)[..., : shape[-1]]
    assert bool(((back - weight.float()).abs() <= 16.001 * step).all())


@pytest.mark.parametrize("shape", [(1, 16), (130, 272), (7, 4096), (3, 1)], ids=str)
def test_rows(shape: tuple[int, ...]) -> None:
    weight = noise(*shape)
    codes, scale = quantize_row_scaled(weight)
    expected_codes, expected_scale = independent_blocks(weight, 1, shape[1])
    assert scale.shape == shape[:1]
    assert (scale.numpy() == expected_scale[:, 0]).all()
    assert (codes.view(torch.uint8).numpy() == expected_codes).all()


def test_zeros_keep_their_sign_and_get_the_scale_1() -> None:
    weight = torch.zeros(130, 130)
    weight[0, 0], weight[129, 129] = -0.0, 3.0
    codes, scale = quantize_block_scaled(weight)
    assert scale[0].tolist() == [1.0, 1.0]
    assert codes.view(torch.uint8)[0, 0] == 0x80
    assert codes.view(torch.uint8)[0, 1] == 0
    assert codes[129, 129].float() == 448
    assert quantize_row_scaled(weight)[1][:129].tolist() == [1.0] * 129


@pytest.mark.parametrize("largest", [2.0**-149, 2.0**-145, 2.0**-133, 1e-40, 2.0**-126, 1.1754942e-38, 448 * 2.0**-149])
def test_subnormal_sources_come_back(largest: float) -> None:
    weight = torch.zeros(2, 128)
    weight[0, 0], weight[1, 5] = largest, -largest / 2
    for codes, scale, back in (
        (*quantize_block_scaled(weight), dequantize_block_scaled),
        (*quantize_row_scaled(weight), dequantize_row_scaled),
    ):
        assert bool((scale > 0).all())
        found = back(codes, scale, out_dtype=torch.float32)
        assert abs(float(found[0, 0]) - float(weight[0, 0])) <= max(2.0**-149, largest / 3)
    expected_codes, expected_scale = independent_blocks(weight, 128, 128)
    assert (quantize_block_scaled(weight)[0].view(torch.uint8).numpy() == expected_codes).all()
    assert (quantize_block_scaled(weight)[1].numpy() == expected_scale).all()


def test_no_code_is_nan_and_no_quotient_is_beyond_448() -> None:
    """The scale is rounded, often down: then the greatest value of a block is a little above 448 scales, and is clamped."""
    weight = torch.from_numpy(np.geomspace(1e-44, 3.4e38, 40_000).astype(np.float32)).view(-1, 1)
    codes, scale = quantize_row_scaled(weight)
    assert not bool(((codes.view(torch.uint8) & 0x7F) == 0x7F).any())
    normal = weight[:, 0] > 1e-30
    assert bool((codes.view(torch.uint8)[normal] == 0x7E).all())  # 448 itself, in each row
    assert bool((scale > 0).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("quantize", [quantize_block_scaled, quantize_row_scaled, quantize_unscaled])
def test_what_is_not_finite_is_counted_and_refused(quantize: Any, value: float) -> None:
    weight = noise(300, 144)
    quantize(weight)
    weight[0, 0] = weight[131, 140] = weight[299, 143] = value
    with pytest.raises(NotFiniteError, match=r"^3 values") as caught:
        quantize(weight)
    assert caught.value.count == 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn])
def test_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    for quantize in (quantize_block_scaled, quantize_row_scaled, quantize_unscaled):
        with pytest.raises(ValueError, match="to float8_e4m3fn, not"):
            quantize(torch.zeros(2, 16).to(dtype))


def test_a_transposed_view_is_quantized_as_what_it_shows() -> None:
    weight = noise(200, 130)
    for quantize in (quantize_block_scaled, quantize_row_scaled):
        for found, expected in zip(quantize(weight.T), quantize(weight.T.contiguous()), strict=True):
            assert torch.equal(bits(found), bits(expected))
    assert torch.equal(bits(quantize_unscaled(weight.T)), bits(quantize_unscaled(weight.T.contiguous())))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("quantize", [quantize_block_scaled, quantize_row_scaled, quantize_unscaled])
def test_the_source_stays_as_it_was(quantize: Any, dtype: torch.dtype) -> None:
    """Also values that are clamped, and in F32, which needs no widening."""
    weight = noise(300, 144, dtype=dtype, spread=1000)
    before = weight.clone()
    quantize(weight)
    assert torch.equal(bits(weight), bits(before))

"""The fast upcast equals the reference formula bit for bit: every code, tails, slices, strips of any size, every capability."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorhub_decoders.upcast.cutting as cutting
import torch
from tensorhub_decoders.upcast.reference import dequantize_block_scaled, dequantize_row_scaled, dequantize_unscaled
from tensorhub_decoders.upcast.strips import upcast_block_scaled, upcast_row_scaled, upcast_unscaled

OUT_DTYPES = [torch.bfloat16, torch.float16, torch.float32]
SCALE_DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(128, 128), (1, 1), (5, 3), (130, 257), (129, 1), (1, 300), (576, 300), (448, 384), (127, 129), (3, 130, 129), (2, 64, 200)]

#: Scales that are hard in one way or another: subnormal, the least, overflowing with a code, overflowing with 256, special.
HARD = [2.0**-149, 2.0**-140, 2.0**-127, 2.0**-17, 1.9e36, 3.4e38, 1.3e36, 0.0, float("inf"), float("nan"), -0.75, 0.00071234]

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
NUMPY = {torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16, torch.float32: np.float32}


def codes(shape: tuple[int, ...], *, nan: bool, seed: int = 0) -> torch.Tensor:
    """Return FP8 codes, all of them if there is room, with or without NaN codes."""
    generator = torch.Generator().manual_seed(seed)
    count = int(np.prod(shape))
    stored = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    stored[: min(count, 256)] = torch.arange(min(count, 256), dtype=torch.uint8)
    if not nan:
        stored[(stored & 0x7F) == 0x7F] = 0x35
    return stored.view(shape).view(torch.float8_e4m3fn)


def grid(shape: tuple[int, ...], dtype: torch.dtype, *, hard: bool, seed: int = 0) -> torch.Tensor:
    """Return scales that are all different, no powers of two; with `hard` some that are hard."""
    generator = torch.Generator().manual_seed(seed)
    form = (*shape[:-2], -(-shape[-2] // 128), -(-shape[-1] // 128))
    scales = torch.rand(form, generator=generator) * 2.0 ** torch.randint(-12, 3, form, generator=generator) + 1e-4
    if hard:
        flat = scales.view(-1)
        for place in range(flat.numel()):
            flat[place] = HARD[(place + seed) % len(HARD)]
    return scales.to(dtype)


def independent_block(weight: torch.Tensor, scale: torch.Tensor, out: torch.dtype) -> np.ndarray[Any, Any]:
    """The formula in numpy and ml_dtypes: one element of the grid for each element of the weight, product in F32, then rounded."""
    values = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    scales = scale.to(torch.float32).numpy()  # each of the three dtypes widens exactly
    rows, columns = np.arange(weight.shape[-2]) // 128, np.arange(weight.shape[-1]) // 128
    with np.errstate(all="ignore"):
        return np.asarray((values * scales[..., rows[:, None], columns[None, :]]).astype(np.float32).astype(NUMPY[out]))


def assert_same(found: torch.Tensor, expected: torch.Tensor | np.ndarray[Any, Any]) -> None:
    """Compare bit for bit; NaN is NaN, whatever its payload, which differs between CPU capabilities."""
    if isinstance(expected, np.ndarray):
        expected = torch.from_numpy(expected.view(np.dtype(f"i{expected.itemsize}")).copy()).view(found.dtype)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    bits = BITS[found.dtype]
    same = (found.contiguous().view(bits) == expected.contiguous().view(bits)) | (found.isnan() & expected.isnan())
    assert bool(same.all()), f"{int((~same).sum())} of {same.numel()} differ, first at {(~same).nonzero()[0].tolist()}"


@pytest.fixture(params=[1 << 20, 4000, 300], ids=lambda elements: f"strips-{elements}")
def strips(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", request.param)
    return request.param


@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_equal_the_formula(shape: tuple[int, ...], out_dtype: torch.dtype, strips: int) -> None:
    for scale_dtype, nan, hard in itertools.product(SCALE_DTYPES, (False, True), (False, True)):
        weight, scale = codes(shape, nan=nan), grid(shape, scale_dtype, hard=hard)
        out = torch.full(shape, 7.0, dtype=out_dtype)
        assert upcast_block_scaled(weight, scale, out) is out
        assert_same(out, independent_block(weight, scale, out_dtype))
        assert_same(dequantize_block_scaled(weight, scale, out_dtype=out_dtype), independent_block(weight, scale, out_dtype))


@pytest.mark.parametrize("hard", HARD, ids=repr)
@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
def test_every_code_with_a_hard_scale(hard: float, out_dtype: torch.dtype) -> None:
    weight, scale = codes((16, 16), nan=True), torch.full((1, 1), hard)
    expected = independent_block(weight, scale, out_dtype)
    assert_same(upcast_block_scaled(weight, scale, torch.full((16, 16), 7.0, dtype=out_dtype)), expected)
    clean = codes((16, 16), nan=False)
    assert_same(upcast_block_scaled(clean, scale, torch.empty(16, 16, dtype=out_dtype)), independent_block(clean, scale, out_dtype))


def test_every_code_with_every_bf16_scale() -> None:
    """256 codes by 65,536 scales: a row for each code, a block of columns for each 1,024 scales, in a layout of rows."""
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    scales = bits.view(torch.bfloat16).float()
    for code in range(256):
        weight = torch.full((65536, 1), code, dtype=torch.uint8).view(torch.float8_e4m3fn)
        values = np.full((65536, 1), code, np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        with np.errstate(all="ignore"):
            expected = (values * scales.numpy()[:, None]).astype(ml_dtypes.bfloat16)
        assert_same(upcast_row_scaled(weight, scales, torch.empty(65536, 1, dtype=torch.bfloat16)), expected)


def test_a_slice_of_rows_is_the_slice_of_the_whole(strips: int) -> None:
    weight, scale = codes((400, 140), nan=True), grid((400, 140), torch.float32, hard=False)
    for out_dtype in OUT_DTYPES:
        whole = upcast_block_scaled(weight, scale, torch.empty(400, 140, dtype=out_dtype))
        for begin, end in [(0, 1), (1, 400), (127, 129), (128, 256), (100, 399), (399, 400), (250, 260), (128, 400), (5, 128)]:
            part = torch.full((end - begin, 140), 7.0, dtype=out_dtype)
            assert_same(upcast_block_scaled(weight[begin:end], scale, part, first_row=begin), whole[begin:end])


def test_a_slice_that_forgets_its_origin_differs() -> None:
    """The control of the test above: rows counted from the slice's own first row are another weight."""
    weight, scale = codes((400, 140), nan=False), grid((400, 140), torch.float32, hard=False)
    whole = upcast_block_scaled(weight, scale, torch.empty(400, 140))
    wrong = upcast_block_scaled(weight[100:300], scale[:2], torch.empty(200, 140))
    assert not torch.equal(wrong, whole[100:300])


@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
def test_rows_equal_the_formula(out_dtype: torch.dtype, strips: int) -> None:
    for shape, nan in itertools.product([(1, 1), (5, 16), (130, 257), (300, 48)], (False, True)):
        weight = codes(shape, nan=nan)
        scale = torch.tensor([HARD[row % len(HARD)] if row % 3 == 0 else 0.001 * row + 0.37 for row in range(shape[0])])
        values = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        with np.errstate(all="ignore"):
            expected = (values * scale.numpy()[:, None]).astype(NUMPY[out_dtype])
        assert_same(upcast_row_scaled(weight, scale, torch.full(shape, 7.0, dtype=out_dtype)), expected)
        assert_same(dequantize_row_scaled(weight, scale, out_dtype=out_dtype), expected)


@pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (256,), (17,), (130, 257), (3, 5, 7), (2, 3, 4, 5), (2, 3, 4, 5, 6), (0,), (0, 5), (5, 0)], ids=str)
def test_values_without_a_scale_keep_their_value(shape: tuple[int, ...], out_dtype: torch.dtype) -> None:
    weight = codes(shape, nan=True)
    expected = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(NUMPY[out_dtype])
    out = upcast_unscaled(weight, torch.full(shape, 7.0, dtype=out_dtype))
    assert_same(out, expected)
    assert_same(dequantize_unscaled(weight, out_dtype=out_dtype), expected)
    assert bool((out.signbit() == torch.from_numpy(np.asarray(np.signbit(expected.astype(np.float32)))))[~out.isnan()].all()), (
        "-0 keeps its sign"
    )


def test_rows_of_a_larger_matrix_are_read_in_place() -> None:
    """A weight whose rows lie apart in memory, and an output that is a part of another."""
    held = codes((300, 512), nan=True)
    weight, scale = held[:, 128:400], grid((300, 272), torch.float32, hard=False)
    room = torch.full((300, 600), 7.0, dtype=torch.bfloat16)
    upcast_block_scaled(weight, scale, room[:, 100:372])
    assert_same(room[:, 100:372].contiguous(), independent_block(weight.contiguous(), scale, torch.bfloat16))
    assert bool((room[:, :100] == 7).all())
    assert bool((room[:, 372:] == 7).all())


@pytest.mark.parametrize(
    ("weight", "scale", "out"),
    [
        ((192, 256), (2, 1), (192, 256)),
        ((192, 256), (1, 2), (192, 256)),
        ((192, 256), (2, 3), (192, 256)),
        ((192, 256), (3, 2), (192, 256)),
        ((192, 256), (4,), (192, 256)),
        ((192, 256), (1, 2, 2), (192, 256)),
        ((2, 192, 256), (3, 2, 2), (2, 192, 256)),
        ((2, 192, 256), (2, 2), (2, 192, 256)),
        ((192, 256), (2, 2), (256, 192)),
        ((192, 256), (2, 2), (192, 255)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(weight: tuple[int, ...], scale: tuple[int, ...], out: tuple[int, ...]) -> None:
    """192 x 256 with a 2 x 2 grid fits a block of 128 only; its transpose and neighbours fit none."""
    with pytest.raises(ValueError, match=r"expected|for weight"):
        upcast_block_scaled(codes(weight, nan=False), torch.ones(scale), torch.empty(out))


def test_other_dtypes_are_refused() -> None:
    weight = codes((4, 4), nan=False)
    with pytest.raises(ValueError, match="float64"):
        upcast_block_scaled(weight, torch.ones(1, 1), torch.empty(4, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="uint8"):
        upcast_block_scaled(weight.view(torch.uint8), torch.ones(1, 1), torch.empty(4, 4))
    with pytest.raises(ValueError, match="expected"):
        upcast_row_scaled(weight, torch.ones(1, 4), torch.empty(4, 4))


def test_threads_have_scratch_of_their_own() -> None:
    weights = [codes((256, 384), nan=number % 2 == 0, seed=number) for number in range(8)]
    scales = [grid((256, 384), torch.float32, hard=False, seed=number) for number in range(8)]
    expected = [independent_block(weight, scale, torch.bfloat16) for weight, scale in zip(weights, scales, strict=True)]
    outs = [torch.empty(256, 384, dtype=torch.bfloat16) for _ in weights]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                upcast_block_scaled(weights[number], scales[number], outs[number])
                assert_same(outs[number], expected[number])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_results_are_the_same_under_every_cpu_capability(capability: str) -> None:
    """torch picks its kernels by this variable; where the CPU lacks one it takes the next."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    command += ["-k", "hard_scale or (strips-1048576 and (blocks_equal or rows_equal))"]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout

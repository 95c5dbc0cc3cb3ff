"""Every scale that `cozy.fp8-rowwise@1` admits, through every door that reads it: bit for bit what the formula says in float64.

A product of an E4M3 code and an F32 or BF16 scale has at most 28 bits, so that float64 holds it exactly: rounding that once to F32,
and the result to the output's dtype, is the contract.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tensorhub_decoders.resident.multiply import block_fp8_linear
from tensorhub_decoders.resident.stored_weight import RowStoredWeight
from tensorhub_decoders.upcast.reference import dequantize_row_scaled
from tensorhub_decoders.upcast.strips import upcast_row_scaled

from tensorhub_contracts import inspect, load
from tests.support.conversions import done

ROWS, COLUMNS = 67, 48
FORMS = [(dtype, shape) for dtype in (torch.float32, torch.bfloat16) for shape in ((ROWS,), (ROWS, 1))]
OUT = {"BF16": (torch.bfloat16, ml_dtypes.bfloat16), "F16": (torch.float16, np.float16), "F32": (torch.float32, np.float32)}


def unit(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Every finite code; scales from subnormal to large, none of them a power of two."""
    chance = np.random.default_rng(seed)
    codes = np.resize(np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8), ROWS * COLUMNS)
    chance.shuffle(codes)
    exponents = np.concatenate([[-133.0, -126.0, -120.0], chance.uniform(-12, 4, ROWS - 3)])
    scale = (np.exp2(exponents) * chance.uniform(1.01, 1.97, ROWS)).astype(np.float32)
    return torch.from_numpy(codes.reshape(ROWS, COLUMNS)).view(torch.float8_e4m3fn), torch.from_numpy(scale).to(dtype).reshape(shape)


def oracle(weight: torch.Tensor, scale: torch.Tensor, out: str) -> np.ndarray:
    """`f32(code) * f32(scale)` in float64, rounded to F32 and then to `out`."""
    codes = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    numbers = scale.float().reshape(-1).numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        return (codes * numbers[:, None]).astype(np.float32).astype(OUT[out][1])


def same(found: torch.Tensor, expected: np.ndarray) -> None:
    bits = {2: torch.int16, 4: torch.int32}[found.element_size()]
    assert found.contiguous().view(bits).numpy().tobytes() == expected.tobytes()


def checkpoint(folder: Path, declared: bool = False) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Write a tree with a unit of each form; return the units."""
    units = {f"{number}.a": unit(dtype, shape, number) for number, (dtype, shape) in enumerate(FORMS)}
    folder.mkdir()
    tensors = {f"{name}.{leaf}": each for name, pair in units.items() for leaf, each in zip(("weight", "weight_scale"), pair, strict=True)}
    save_file({**tensors, "norm.weight": torch.ones(8, dtype=torch.bfloat16)}, folder / "model.safetensors")
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}} if declared else {}
    (folder / "config.json").write_text(json.dumps(config))
    return units


def upcast(folder: Path, out: str, *, resident: bool = False) -> Mapping[str, Any]:
    """Load a quantized tree in the lane that has `out`."""
    return load(folder, dtype=out, resident=resident, lane="fp8-w8a32" if out == "F32" else "fp8-w8a16").weights


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize(("dtype", "shape"), FORMS, ids=str)
def test_the_upcast_and_the_reference_are_the_oracle(dtype: torch.dtype, shape: tuple[int, ...], out: str) -> None:
    weight, scale = unit(dtype, shape)
    expected = oracle(weight, scale, out)
    same(upcast_row_scaled(weight, scale, torch.empty(ROWS, COLUMNS, dtype=OUT[out][0])), expected)
    same(dequantize_row_scaled(weight, scale, out_dtype=OUT[out][0]), expected)
    stored, rows = RowStoredWeight(weight, scale), torch.empty(20, COLUMNS, dtype=OUT[out][0])
    stored.upcast(11, 31, rows)
    same(rows, expected[11:31])


def test_the_oracle_sees_the_two_roundings() -> None:
    """The control: rounding the exact product once gives other numbers, and so does a scale that is rounded."""
    weight, scale = unit(torch.float32, (ROWS,))
    codes = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    telltale = torch.full((ROWS,), float.fromhex("0x1.965d16p+0"))
    once = (codes * telltale.numpy().astype(np.float64)[:, None]).astype(np.float16)
    assert (once.view(np.int16) != oracle(weight, telltale, "F16").view(np.int16)).any()
    assert (oracle(weight, scale.bfloat16(), "F32") != oracle(weight, scale, "F32")).any()


@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "modelopt"])
@pytest.mark.parametrize("out", OUT)
def test_load_gives_the_oracle_for_every_form(out: str, declared: bool, tmp_path: Path) -> None:
    units = checkpoint(tmp_path / "rows", declared)
    loaded = upcast(tmp_path / "rows", out)
    for name, (weight, scale) in units.items():
        same(loaded[f"{name}.weight"], oracle(weight, scale, out))


def test_resident_modules_compute_with_the_oracles_weights_and_keep_the_stored_bytes(tmp_path: Path) -> None:
    units = checkpoint(tmp_path / "rows")
    loaded = upcast(tmp_path / "rows", "F32", resident=True)
    x = torch.eye(COLUMNS)
    for name, (weight, scale) in units.items():
        module = loaded[f"{name}.weight"]
        same(module(x).T, oracle(weight, scale, "F32") + np.float32(0))  # a sum with zeros has no negative zero
        kept = module.state_dict()
        assert kept["weight_scale"].dtype is scale.dtype
        assert kept["weight_scale"].shape == scale.shape
        assert torch.equal(kept["weight_scale"], scale)
        module.load_state_dict(kept)
        other = {**kept, "weight_scale": scale.reshape(-1, 1) if scale.dim() == 1 else scale.reshape(-1)}
        with pytest.raises(RuntimeError, match="weight_scale"):
            module.load_state_dict(other)


@pytest.mark.parametrize(("dtype", "shape"), FORMS, ids=str)
def test_kernels_get_f32_and_one_dimension_and_their_cpu_reference_is_the_oracle(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    weight, scale = unit(dtype, shape)
    given, rows = RowStoredWeight(weight, scale).kernel_scale()
    assert (given.dtype, given.shape, rows) == (torch.float32, (ROWS,), None)
    assert given.is_contiguous()
    assert torch.equal(given.double(), scale.double().reshape(-1))
    x = torch.eye(COLUMNS)
    same(block_fp8_linear(x, weight.view(torch.uint8), given, None, None, "w8a32", "row").T, oracle(weight, scale, "F32") + np.float32(0))


def test_decode_and_produce_take_every_form_and_write_their_own(tmp_path: Path) -> None:
    units = checkpoint(tmp_path / "rows", declared=True)
    done("decode", tmp_path / "rows", tmp_path / "dense", "--to", "plain.bf16@1")
    decoded = load(tmp_path / "dense", dtype="BF16", resident=False).weights
    for name, (weight, scale) in units.items():
        same(decoded[f"{name}.weight"], oracle(weight, scale, "BF16"))
    assert "quantization_config" not in json.loads((tmp_path / "dense" / "config.json").read_text())
    done("produce", tmp_path / "dense", tmp_path / "again", "--to", "cozy.fp8-rowwise@1")
    again = inspect(tmp_path / "again")
    assert again.contract == "cozy.fp8-rowwise@1"
    assert {(layout.scale_dtype, layout.grid) for layout in again.layouts.values()} == {("F32", (ROWS,))}
    assert "quantization_config" not in json.loads((tmp_path / "again" / "config.json").read_text())


@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "modelopt"])
def test_produce_keeps_units_of_every_form_and_what_declares_them(declared: bool, tmp_path: Path) -> None:
    units = checkpoint(tmp_path / "rows", declared)
    tensors = {f"{n}.{leaf}": t for n, pair in units.items() for leaf, t in zip(("weight", "weight_scale"), pair, strict=True)}
    save_file({**tensors, "extra.weight": torch.ones(16, 32, dtype=torch.bfloat16)}, tmp_path / "rows" / "model.safetensors")
    done("produce", tmp_path / "rows", tmp_path / "more", "--to", "cozy.fp8-rowwise@1", "--only", "extra.*")
    more = inspect(tmp_path / "more")
    assert (more.contract, more.unit_count) == ("cozy.fp8-rowwise@1", 5)
    assert ("quantization_config" in json.loads((tmp_path / "more" / "config.json").read_text())) is declared
    loaded = upcast(tmp_path / "more", "F32")
    for name, (weight, scale) in units.items():
        same(loaded[f"{name}.weight"], oracle(weight, scale, "F32"))

"""`tensorhub decode`: what the reference dequant gives, bit for bit, in an unquantized checkpoint; overflow and NaN are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
import tensorhub_decoders.upcast.strips as decoding
import torch
from tensorhub_decoders.upcast.reference import dequantize_block_scaled, dequantize_row_scaled, dequantize_unscaled

from tensorhub_contracts import FaultError, inspect
from tests.support.conversions import (
    BLOCKWISE,
    CONTRACTS,
    ROWWISE,
    STORAGE,
    bits,
    digests,
    done,
    load,
    noise,
    refused,
    run,
    save,
    small_model,
)
from tests.support.tiny_models import fp8_qwen3_moe

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
DECLARED = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small model, unquantized, and in each FP8 contract but for its embedding."""
    folder = tmp_path_factory.mktemp("produced")
    save(folder / "dense", small_model(), config={"vocab_size": 40})
    for contract in CONTRACTS:
        done("produce", folder / "dense", folder / contract, "--to", contract, "--skip", "embed.weight")
    return folder


def reference(contract: str, tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype) -> torch.Tensor:
    if contract == BLOCKWISE:
        return dequantize_block_scaled(tensors[name], tensors[f"{name}_scale_inv"], out_dtype=dtype)
    if contract == ROWWISE:
        return dequantize_row_scaled(tensors[name], tensors[f"{name}_scale"], out_dtype=dtype)
    return dequantize_unscaled(tensors[name], out_dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_each_unit_is_what_the_reference_gives_and_the_rest_is_as_it_was(tmp_path: Path, produced: Path, contract: str, dtype: str) -> None:
    source = produced / contract
    report = done("decode", source, tmp_path / "dense", "--to", f"plain.{dtype}@1")
    inspection = inspect(tmp_path / "dense").require()
    assert inspection.contract == report["contract"] == f"plain.{dtype}@1"
    before, after = load(source), load(tmp_path / "dense")
    units = {unit.name for unit in inspect(source).units}
    assert set(report["decoded"]) == units
    assert set(after) == {name for name in before if not name.endswith(("_scale_inv", "_scale"))} == set(load(produced / "dense"))
    for name, tensor in after.items():
        if name in units:
            assert torch.equal(bits(tensor), bits(reference(contract, before, name, DTYPES[dtype]))), name
        elif name in report["cast"]:
            assert torch.equal(bits(tensor), bits(before[name].to(DTYPES[dtype])))
        else:
            assert torch.equal(bits(tensor), bits(before[name])), name
    unquantized = {"embed.weight"} if contract == BLOCKWISE else {"embed.weight", "layers.0.experts.gate_up", "layers.1.experts.gate_up"}
    assert set(report["cast"]) == (set() if dtype == "bf16" else unquantized)
    assert json.loads((tmp_path / "dense" / "config.json").read_text()) == {"vocab_size": 40}


def test_what_is_produced_again_from_what_was_decoded_has_the_same_codes(tmp_path: Path, produced: Path) -> None:
    """Decoding to F32 loses nothing but the rounding of the product, so that codes come back, whatever becomes of the scales."""
    done("decode", produced / STORAGE, tmp_path / "dense", "--to", "plain.f32@1")
    done("produce", tmp_path / "dense", tmp_path / "again", "--to", STORAGE, "--skip", "embed.weight")
    first, again = load(produced / STORAGE), load(tmp_path / "again")
    assert all(torch.equal(bits(first[unit.name]), bits(again[unit.name])) for unit in inspect(produced / STORAGE).units)


def test_scales_in_other_shards_and_casts_that_are_announced(tmp_path: Path) -> None:
    source = fp8_qwen3_moe(tmp_path / "source")
    found = run("decode", source, tmp_path / "dense", "--to", "plain.f16@1")
    assert found.code == 0
    assert "casting to f16, as the units are, 4 tensors:\n" in found.err
    assert "  model.layers.*.mlp.gate.weight  [4, 192]  x 2\n" in found.err
    index = json.loads((tmp_path / "dense" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in load(tmp_path / "dense").values())
    assert inspect(tmp_path / "dense").contract == "plain.f16@1"


def test_a_shard_of_nothing_but_scales_is_gone_and_the_numbers_close_up(tmp_path: Path) -> None:
    codes = torch.full((128, 128), 3.0).to(torch.float8_e4m3fn)
    shards = ({"a.weight": codes}, {"a.weight_scale_inv": torch.ones(1, 1)}, {"norm.weight": noise(8)})
    source = save(tmp_path / "source", *shards, config={"text_config": {"quantization_config": DECLARED, "x": 1}, "y": 2})
    done("decode", source, tmp_path / "dense", "--to", "plain.bf16@1")
    names = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert sorted(os.listdir(tmp_path / "dense")) == names
    assert json.loads((tmp_path / "dense" / "config.json").read_text()) == {"text_config": {"x": 1}, "y": 2}
    assert set(load(tmp_path / "dense")) == {"a.weight", "norm.weight"}


def test_vectors_and_other_ranks_of_storage(tmp_path: Path) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    every[[0x7F, 0xFF]] = 0
    tensors = {f"rank{rank}": every.view([1] * (rank - 1) + [256]).view(torch.float8_e4m3fn) for rank in range(1, 6)}
    small = (torch.arange(4096) % 32).to(torch.uint8).view(torch.float8_e4m3fn)  # all codes fill the range, as those without a scale do
    named = ("--to", "plain.f16@1", "--contract", "cozy.fp8-storage@1")
    source = save(tmp_path / "source", {**tensors, **{f"small{number}": small.view(64, 64) for number in range(5)}})
    done("decode", source, tmp_path / "dense", *named)
    for tensor in (tensor for name, tensor in load(tmp_path / "dense").items() if name.startswith("rank")):
        assert torch.equal(bits(tensor), bits(every.view(torch.float8_e4m3fn).float().half()))


def test_overflow_is_refused_with_every_tensor_and_fits_a_wider_dtype(tmp_path: Path) -> None:
    codes = torch.full((144, 144), 448.0).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1.0, 147.0], [1.0, 1.0]])  # 448 * 147 is beyond 65,504; 16 columns of 128 rows
    wide = noise(8, 8, dtype=torch.float32)
    wide[0, 0] = 70_000
    tensors = {"a.weight": codes, "a.weight_scale_inv": scale, "b.weight": codes, "b.weight_scale_inv": scale, "c.weight": wide}
    source = save(tmp_path / "source", tensors, config={"quantization_config": DECLARED})
    violations = refused("decode", source, tmp_path / "dense", "--to", "plain.f16@1")
    assert sorted((each["code"], each["object"]) for each in violations) == [("values-overflow", f"{name}.weight") for name in "abc"]
    assert {each["found"].partition(" of")[0] for each in violations} == {"2,048", "1"}
    assert sorted(os.listdir(tmp_path)) == ["source"]
    done("decode", source, tmp_path / "dense", "--to", "plain.bf16@1")


def test_nan_is_refused_with_every_unit_and_kept_when_told_so(tmp_path: Path) -> None:
    codes = torch.full((130, 16), 2.0).to(torch.float8_e4m3fn)
    codes.view(torch.uint8)[129, :3] = torch.tensor([0x7F, 0xFF, 0x7F], dtype=torch.uint8)
    scale = torch.ones(16)
    scale[2] = float("nan")
    tensors = {"a.weight": codes, "a.weight_scale": torch.ones(130), "b.weight": codes[:16].clone(), "b.weight_scale": scale}
    source = save(tmp_path / "source", tensors)
    violations = refused("decode", source, tmp_path / "dense", "--to", "plain.bf16@1")
    assert {(each["code"], each["object"], each["found"].partition(" of")[0]) for each in violations} == {
        ("values-nan", "a.weight", "3"),
        ("values-nan", "b.weight", "16"),
    }
    assert sorted(os.listdir(tmp_path)) == ["source"]
    done("decode", source, tmp_path / "dense", "--to", "plain.bf16@1", "--allow-nan")
    assert int(load(tmp_path / "dense")["a.weight"].isnan().sum()) == 3


@pytest.mark.parametrize("contract", CONTRACTS)
def test_one_wrong_bit_is_a_fault_and_nothing_becomes_of_it(
    tmp_path: Path, produced: Path, contract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {BLOCKWISE: "upcast_block_scaled", ROWWISE: "upcast_row_scaled", STORAGE: "upcast_unscaled"}[contract]
    right = getattr(decoding, name)

    def wrong(*arguments: torch.Tensor, **where: int) -> torch.Tensor:
        out: torch.Tensor = right(*arguments, **where)
        out.view(-1)[-1:].view(torch.int16)[0] ^= 1
        return out

    monkeypatch.setattr(decoding, name, wrong)
    with pytest.raises(FaultError, match=r"not what the reference dequant of .* gives"):
        run("decode", produced / contract, tmp_path / "dense", "--to", "plain.bf16@1")
    assert not (tmp_path / "dense").exists()
    monkeypatch.undo()
    done("decode", produced / contract, tmp_path / "dense", "--to", "plain.bf16@1")


def test_other_sources_and_wrong_usage(tmp_path: Path, produced: Path) -> None:
    (violation,) = refused("decode", produced / "dense", tmp_path / "dense", "--to", "plain.bf16@1")
    assert violation["code"] == "conversion-impossible"
    assert violation["found"] == "plain.bf16@1"
    for arguments in ((), ("--to", "plain.f64@1"), ("--to", "bf16"), ("--dtype", "bf16"), ("--to", ROWWISE)):
        with pytest.raises(click.UsageError):
            run("decode", produced / ROWWISE, tmp_path / "dense", *arguments)
    (violation,) = refused("decode", produced / ROWWISE, produced / ROWWISE, "--to", "plain.bf16@1")
    assert violation["code"] == "destination-exists"
    assert not list(tmp_path.iterdir())


def test_the_same_command_writes_the_same_bytes(tmp_path: Path, produced: Path) -> None:
    for name in "ab":
        done("decode", produced / BLOCKWISE, tmp_path / name, "--to", "plain.bf16@1")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")

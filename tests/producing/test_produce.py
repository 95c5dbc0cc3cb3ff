"""`tensorhub produce`: what it writes, what it leaves as it is, and what it refuses, by name."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tensorhub_decoders.converting.fp8_quantization import quantize_block_scaled, quantize_row_scaled, quantize_unscaled
from tensorhub_decoders.upcast.reference import dequantize_block_scaled

from tensorhub_contracts import __version__, inspect
from tensorhub_contracts.registry.registry import load_registry
from tests.support.cli import TENSORHUB, environment
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
from tests.support.tiny_models import _SIZES, LlamaConfig, LlamaForCausalLM, _built, compressed_llama, dense_llama

MATRICES = {f"layers.{layer}.{name}.weight" for layer in range(2) for name in ("up", "down", "one")} | {"embed.weight"}
STACKS = {f"layers.{layer}.experts.gate_up" for layer in range(2)}
VOCABULARY = {"vocab_size": 40, "architectures": ["Small"], "tie_word_embeddings": True}


def two_shards(folder: Path, dtype: torch.dtype = torch.bfloat16, **keywords: Any) -> Path:
    tensors = small_model(dtype)
    names = list(tensors)
    return save(folder, *({name: tensors[name] for name in names[number::2]} for number in range(2)), **keywords)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_shards(tmp_path_factory.mktemp("dense") / "source", config=VOCABULARY, metadata={"format": "pt", "trained": "yes"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_matrix_is_quantized_and_the_rest_is_as_it_was(tmp_path: Path, contract: str, dtype: torch.dtype) -> None:
    source = two_shards(tmp_path / "source", dtype, config=VOCABULARY)
    report = done("produce", source, tmp_path / "made", "--to", contract)
    before, after = load(source), load(tmp_path / "made")
    expected = MATRICES | (STACKS if contract == BLOCKWISE else set())
    assert set(report["quantized"]) == expected
    inspection = inspect(tmp_path / "made").require()
    assert inspection.contract == contract == report["contract"]
    assert {unit.name for unit in inspection.units} == expected
    for name, tensor in before.items():
        if name not in expected:
            assert torch.equal(bits(after.pop(name)), bits(tensor)), name
        elif contract == STORAGE:
            assert torch.equal(bits(after.pop(name)), bits(quantize_unscaled(tensor)))
        else:
            quantize, suffix = (quantize_block_scaled, "_scale_inv") if contract == BLOCKWISE else (quantize_row_scaled, "_scale")
            codes, scale = quantize(tensor)
            assert torch.equal(bits(after.pop(name)), bits(codes)), name
            assert torch.equal(after.pop(name + suffix), scale)
    assert not after
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source"]


def test_shards_index_and_provenance(tmp_path: Path, source: Path) -> None:
    done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    old = json.loads((source / "model.safetensors.index.json").read_text())["weight_map"]
    index = json.loads((tmp_path / "made" / "model.safetensors.index.json").read_text())
    assert {name: shard for name, shard in index["weight_map"].items() if not name.endswith("_scale_inv")} == old
    assert all(old[name.removesuffix("_scale_inv")] == shard for name, shard in index["weight_map"].items())
    assert list(index["weight_map"]) == sorted(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in load(tmp_path / "made").values())
    with safe_open(tmp_path / "made" / "model-00001-of-00002.safetensors", "pt") as file:
        headers = inspect(source).checkpoint
        assert headers is not None
        assert file.metadata() == {
            "format": "pt",
            "trained": "yes",
            "tensorhub.contract": BLOCKWISE,
            "tensorhub.produced_by": f"tensorhub-contracts {__version__}",
            "tensorhub.source_headers": headers.headers_digest,
        }


@pytest.mark.parametrize("base", ["model", "diffusion_pytorch_model"])
def test_shards_without_an_index_get_one(tmp_path: Path, base: str) -> None:
    source = save(tmp_path / "source", {"a.weight": noise(16, 16)}, {"b.weight": noise(16, 16)}, base=base)
    (source / f"{base}.safetensors.index.json").unlink()
    done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    index = json.loads((tmp_path / "made" / f"{base}.safetensors.index.json").read_text())
    assert index["weight_map"]["b.weight_scale_inv"] == f"{base}-00002-of-00002.safetensors"
    assert sorted(index["weight_map"]) == sorted(load(tmp_path / "made"))


def test_a_tensor_in_two_shards_is_written_once_as_the_shard_has_it_that_counts(tmp_path: Path) -> None:
    right, stale, norm = noise(128, 128), noise(128, 128, seed=1), noise(9)
    source = save(tmp_path / "source", {"a.weight": right, "norm": norm}, {"b.weight": noise(16, 16)})
    save_file({"a.weight": stale, "b.weight": noise(16, 16), "norm": norm + 1}, source / "model-00002-of-00002.safetensors")
    report = done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    assert report["quantized"] == ["a.weight", "b.weight"]
    second = load_file(tmp_path / "made" / "model-00002-of-00002.safetensors")
    assert sorted(second) == ["b.weight", "b.weight_scale_inv"]
    made = load(tmp_path / "made")
    assert torch.equal(bits(made["a.weight"]), bits(quantize_block_scaled(right)[0]))
    assert torch.equal(made["norm"], norm)
    done("decode", tmp_path / "made", tmp_path / "dense", "--to", "plain.bf16@1")
    assert len(load(tmp_path / "dense")) == 3


def test_the_declaration_of_blockwise_and_none_of_the_others(tmp_path: Path, source: Path) -> None:
    done("produce", source, tmp_path / "blocks", "--to", BLOCKWISE, "--skip", "embed.*", "--skip", "*.experts.*")
    config = json.loads((tmp_path / "blocks" / "config.json").read_text())
    assert config.pop("quantization_config") == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["embed", "layers.0.experts", "layers.1.experts", "lm_head"],
    }
    assert config == VOCABULARY
    for contract in (ROWWISE, STORAGE):
        done("produce", source, tmp_path / contract, "--to", contract)
        assert (tmp_path / contract / "config.json").read_bytes() == (source / "config.json").read_bytes()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_single_file_without_a_configuration(tmp_path: Path, contract: str) -> None:
    source = save(tmp_path / "source", {"a.weight": noise(128, 128)})
    done("produce", source / "model.safetensors", tmp_path / "file", "--to", contract)
    done("produce", source, tmp_path / "folder", "--to", contract)
    assert digests(tmp_path / "file") == digests(tmp_path / "folder")
    names = {"model.safetensors", "config.json"} if contract == BLOCKWISE else {"model.safetensors"}
    assert set(digests(tmp_path / "file")) == names


def test_patterns_and_what_is_said_of_them(tmp_path: Path, source: Path) -> None:
    found = run("produce", source, tmp_path / "a", "--to", BLOCKWISE, "--skip", "*.experts.*", "--skip", "*.one.*")
    assert found.code == 0
    assert "quantizing 5 tensors:\n" in found.err
    assert "  layers.*.up.weight  [130, 144]  x 2\n" in found.err
    assert "note: embed.weight looks like an embedding" in found.err
    assert "quantized 5 tensors" in found.out
    found = run("produce", source, tmp_path / "b", "--to", BLOCKWISE, "--only", "layers.0.*", "--skip", "*.up.weight")
    assert "note:" not in found.err
    assert {unit.name for unit in inspect(tmp_path / "b").units} == {
        "layers.0.down.weight", "layers.0.one.weight", "layers.0.experts.gate_up",
    }  # fmt: skip


def test_patterns_that_match_nothing_are_refused_all_of_them(tmp_path: Path, source: Path) -> None:
    arguments = ("--only", "layers.0.*", "--only", "nrom*", "--skip", "*.gate.weight", "--skip", "norm.weight")
    violations = refused("produce", source, tmp_path / "made", "--to", BLOCKWISE, *arguments)
    assert [(each["code"], each["object"]) for each in violations] == [("pattern-unmatched", "--only nrom*")]
    violations = refused("produce", source, tmp_path / "made", "--to", BLOCKWISE, "--skip", "a", "--skip", "b")
    assert [each["object"] for each in violations] == ["--skip a", "--skip b"]
    violations = refused("produce", source, tmp_path / "made", "--to", BLOCKWISE, "--skip", "*")
    assert [each["code"] for each in violations] == ["nothing-to-convert"]
    assert not list(tmp_path.iterdir())


def test_rows_that_are_not_aligned_are_refused_all_of_them_and_skipped_when_told_so(tmp_path: Path) -> None:
    tensors = {"a.weight": noise(4, 16), "b.weight": noise(4, 24), "c.weight": noise(16, 15), "d.weight": noise(3, 3)}
    source = save(tmp_path / "source", tensors)
    violations = refused("produce", source, tmp_path / "made", "--to", ROWWISE)
    assert [(each["code"], each["object"]) for each in violations] == [("weight-alignment", f"{name}.weight") for name in "bcd"]
    assert all(f"--skip {each['object']}" in each["remedy"] for each in violations)
    assert "in = 24 of [4, 24]" in violations[0]["found"]
    done("produce", source, tmp_path / "made", "--to", ROWWISE, "--skip", "[b-d].weight")
    done("produce", source, tmp_path / "blocks", "--to", BLOCKWISE)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_values_that_are_not_finite_are_refused_with_every_tensor_and_leave_nothing(tmp_path: Path, contract: str) -> None:
    tensors = small_model()
    tensors["layers.0.up.weight"][3, 3:5] = float("nan")
    tensors["layers.1.down.weight"][0, 0] = float("inf")
    tensors["norm.weight"][0] = float("nan")  # is not quantized, and is kept
    source = save(tmp_path / "source", tensors, config=VOCABULARY)
    violations = refused("produce", source, tmp_path / "made", "--to", contract)
    assert {(each["code"], each["object"]) for each in violations} == {
        ("values-not-finite", "layers.0.up.weight"),
        ("values-not-finite", "layers.1.down.weight"),
    }
    assert {each["found"].partition(" of")[0] for each in violations} == {"2", "1"}
    assert sorted(os.listdir(tmp_path)) == ["source"]
    done("produce", source, tmp_path / "made", "--to", contract, "--skip", "layers.0.up.weight", "--skip", "layers.1.down.weight")


def test_other_sources_are_refused_by_name(tmp_path: Path, source: Path) -> None:
    for contract in CONTRACTS:
        done("produce", source, tmp_path / contract, "--to", contract)
    for have in CONTRACTS:
        for want in CONTRACTS:
            (violation,) = refused("produce", tmp_path / have, tmp_path / "made", "--to", want)
            code = "nothing-to-convert" if have == want else "conversion-impossible"
            assert violation["code"] == code
            assert have in violation["found"]
    violations = refused("produce", compressed_llama(tmp_path / "ct", "FP8_DYNAMIC"), tmp_path / "made", "--to", ROWWISE)
    assert [each["code"] for each in violations] == ["conversion-impossible"]
    wide = save(tmp_path / "wide", {"a.weight": noise(16, 16), "b.weight": noise(16, 16, dtype=torch.float64)})
    assert [each["code"] for each in refused("produce", wide, tmp_path / "made", "--to", ROWWISE)] == ["unquantized-dtype"]
    declared = save(tmp_path / "declared", {"a.weight": noise(16, 16)}, config={"quantization_config": {"quant_method": "gptq"}})
    assert run("produce", declared, tmp_path / "made", "--to", ROWWISE).code == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_units_pass_through_and_a_dense_module_is_converted_when_it_is_named(tmp_path: Path, source: Path, contract: str) -> None:
    first = tmp_path / "first"
    done("produce", source, first, "--to", contract, "--skip", "*.down.weight", "--skip", "embed.*")
    report = done("produce", first, tmp_path / "second", "--to", contract, "--only", "layers.0.down.weight")
    assert report["quantized"] == ["layers.0.down.weight"]
    before, after = load(first), load(tmp_path / "second")
    assert report["units_kept"] == inspect(first).unit_count
    for name, tensor in before.items():
        if name != "layers.0.down.weight":
            assert torch.equal(bits(after[name]), bits(tensor)), name
    # What comes of it is what a single run makes, byte for byte, but for the provenance of the headers.
    done("produce", source, tmp_path / "at once", "--to", contract, "--skip", "layers.1.down.weight", "--skip", "embed.*")
    assert {name: bits(tensor).tolist() for name, tensor in load(tmp_path / "at once").items()} == {
        name: bits(tensor).tolist() for name, tensor in after.items()
    }
    if contract == BLOCKWISE:
        config = json.loads((tmp_path / "second" / "config.json").read_text())
        assert config["quantization_config"]["modules_to_not_convert"] == ["embed", "layers.1.down", "lm_head"]
    assert refused("produce", first, tmp_path / "third", "--to", contract, "--only", "*.up.weight")[0]["code"] == "pattern-unmatched"


def test_a_list_of_modules_keeps_what_still_holds(tmp_path: Path) -> None:
    tensors = {f"{name}.weight": noise(128, 128) for name in ("vision.a", "vision.b", "head", "text.a")}
    done("produce", save(tmp_path / "source", tensors, config={}), tmp_path / "a", "--to", BLOCKWISE, "--only", "text.a.weight")
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    config["quantization_config"]["modules_to_not_convert"] = ["vision", "head", "elsewhere"]
    (tmp_path / "a" / "config.json").write_text(json.dumps(config))
    done("produce", tmp_path / "a", tmp_path / "b", "--to", BLOCKWISE, "--only", "vision.a.weight")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["quantization_config"]["modules_to_not_convert"] == ["head", "elsewhere", "vision.b"]


def test_files_that_are_copied_and_files_that_are_not(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"a.weight": noise(16, 16)}, config={})
    (source / "linked").mkdir()
    (source / "linked" / "blob").write_text('{"linked": true}')
    (source / "tokenizer.json").symlink_to("linked/blob")
    (source / "generation_config.json").write_text("{}")
    (source / "onnx").mkdir()
    for name in ("pytorch_model.bin", "training_args.bin", "old.ckpt", "x.pt", "x.pth", "SHOUTED.PT", "pytorch_model.bin.index.json"):
        (source / name).write_bytes(b"weights")
    (source / "innocent.dat").write_bytes(b"\x80\x04pickle")
    (source / "archive").write_bytes(b"PK\x03\x04....")
    (source / "broken.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(source / "pipe")
    with (source / "large.txt").open("wb") as file:
        file.truncate(64_000_000)
    save(tmp_path / "other", {"b.weight": noise(16, 16)})
    (tmp_path / "other" / "model.safetensors").rename(source / "other.safetensors")
    report = done("produce", source, tmp_path / "made", "--to", ROWWISE)
    assert sorted(os.listdir(tmp_path / "made")) == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    assert not (tmp_path / "made" / "tokenizer.json").is_symlink()
    assert (tmp_path / "made" / "tokenizer.json").read_text() == '{"linked": true}'
    assert {each["name"] for each in report["files_not_copied"]} == set(os.listdir(source)) - set(os.listdir(tmp_path / "made"))


def test_a_name_that_a_scale_would_take_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A norm of DeepSeek-V4's naming beside the weight: once that is quantized, two leaves say that they scale it."""
    source = save(tmp_path / "source", {"a.weight": noise(128, 128), "a.scale": noise(128, dtype=torch.float32)})
    assert inspect(source).contract == "plain.bf16@1"
    violations = refused("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    assert {each["code"] for each in violations} <= {"scale-ambiguous", "layout-mixed", "scale-name-foreign"}
    assert sorted(os.listdir(tmp_path)) == ["source"]


@pytest.mark.parametrize("contract", [BLOCKWISE, ROWWISE])
def test_a_source_that_has_a_name_that_a_scale_would_get_is_in_no_contract(tmp_path: Path, contract: str) -> None:
    """A plan can therefore write no name twice, and does not look for it."""
    scale = "_scale_inv" if contract == BLOCKWISE else "_scale"
    names = ["a.weight", "experts.gate_up"] if contract == BLOCKWISE else ["a.weight"]
    for name in names:
        weight = noise(3, 16, 16) if name == "experts.gate_up" else noise(16, 16)
        for number, taken in enumerate((noise(16), torch.arange(3), noise(1, 1, dtype=torch.float32))):
            source = save(tmp_path / f"{name}{number}", {name: weight, name + scale: taken})
            assert "scale-orphan" in {each["code"] for each in refused("produce", source, tmp_path / "made", "--to", contract)}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["hf_quant_config", "params"])
def test_a_source_that_declares_something_beside_its_configuration_is_in_no_contract_that_is_converted(
    tmp_path: Path, source: Path, name: str
) -> None:
    """A plan can therefore look at `config.json` alone."""
    done("produce", source, tmp_path / "blocks", "--to", BLOCKWISE)
    for folder in (shutil.copytree(source, tmp_path / "dense"), tmp_path / "blocks"):
        (folder / f"{name}.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
        for command in (("produce", "--to", BLOCKWISE, "--only", "embed.*"), ("decode", "--to", "plain.bf16@1")):
            assert refused(command[0], folder, tmp_path / "made", *command[1:])
        assert inspect(folder).contract is None
    registry = load_registry()
    converted = {handle for edge in registry.conversions for handle in (*edge.source, *edge.to)}
    beside = [each for handle in converted for each in registry.contracts[handle].declares if each.source != "quantization_config"]
    assert [(each.source, each.require[0].any_of) for each in beside] == [("hf_quant_config", ("FP8_BLOCK_SCALES", "FP8_PB_WO"))]


def test_blocks_that_two_files_declare_are_completed_and_decoded(tmp_path: Path, source: Path) -> None:
    """The second file says no more than the contract, and goes along; a checkpoint that is decoded leaves it behind."""
    done("produce", source, tmp_path / "blocks", "--to", BLOCKWISE, "--skip", "*up*")
    second = {"quantization": {"quant_algo": "FP8_BLOCK_SCALES"}}
    (tmp_path / "blocks" / "hf_quant_config.json").write_text(json.dumps(second))
    done("produce", tmp_path / "blocks", tmp_path / "more", "--to", BLOCKWISE, "--only", "*up*")
    assert inspect(tmp_path / "more").unit_count > inspect(tmp_path / "blocks").unit_count
    assert json.loads((tmp_path / "more" / "hf_quant_config.json").read_text()) == second
    done("decode", tmp_path / "more", tmp_path / "dense", "--to", "plain.bf16@1")
    assert not (tmp_path / "dense" / "hf_quant_config.json").exists()


def test_a_source_of_mixed_dtypes_is_quantized_from_each_of_them(tmp_path: Path) -> None:
    """A router in F32 stays so where it is skipped; matrices of either dtype become units."""
    wide = {name: noise(16, 32, dtype=torch.float32) for name in ("b.weight", "router.weight")}
    tensors = {"a.weight": noise(16, 32), **wide}
    source = save(tmp_path / "source", tensors)
    assert inspect(source).contract == "plain.mixed@1"
    for contract in (BLOCKWISE, ROWWISE, STORAGE):
        done("produce", source, tmp_path / contract, "--to", contract, "--skip", "router*")
        made = inspect(tmp_path / contract)
        assert (made.contract, sorted(made.layouts)) == (contract, ["a.weight", "b.weight"])
        assert made.groups is not None
        assert made.groups.unquantized["router.weight"].dtype == "F32"
    for name in ("a", "b"):
        alone = save(tmp_path / f"alone-{name}", {f"{name}.weight": tensors[f"{name}.weight"]})
        done("produce", alone, tmp_path / f"made-{name}", "--to", ROWWISE)
        stored = load_file(tmp_path / f"made-{name}" / "model.safetensors")
        together = load_file(tmp_path / ROWWISE / "model.safetensors")
        assert all(torch.equal(together[key].view(torch.uint8), each.view(torch.uint8)) for key, each in stored.items())


def test_odd_sizes_stay_aligned(tmp_path: Path) -> None:
    """Three codes and then a scale of four bytes: readers that view bytes as F32 need it at a multiple of four."""
    source = save(
        tmp_path / "source", {"a.weight": noise(1, 3), "b.weight": noise(3, 1), "c": torch.tensor([True] * 5), "d": torch.arange(3)}
    )
    done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    checkpoint = inspect(tmp_path / "made").checkpoint
    assert checkpoint is not None
    for entry in checkpoint.headers["model.safetensors"].tensors.values():
        assert (8 + checkpoint.headers["model.safetensors"].length + entry.data_offsets[0]) % {"F32": 4, "I64": 8}.get(entry.dtype, 1) == 0
    assert load(tmp_path / "made")["d"].tolist() == [0, 1, 2]


def test_an_empty_tensor_and_a_shard_of_it(tmp_path: Path) -> None:
    source = save(
        tmp_path / "source", {"a.weight": noise(16, 16)}, {"empty": torch.zeros(0), "none": torch.zeros(0, 3, dtype=torch.bfloat16)}
    )
    done("produce", source, tmp_path / "made", "--to", ROWWISE)
    assert load(tmp_path / "made")["none"].shape == (0, 3)


@pytest.mark.parametrize(
    "arguments", [(), ("--to", "plain.bf16@1"), ("--to", "hf.fp8"), ("--contract", BLOCKWISE), ("--to", BLOCKWISE, "--dtype", "bf16")]
)
def test_wrong_usage(tmp_path: Path, source: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        run("produce", source, tmp_path / "made", *arguments)
    with pytest.raises(click.UsageError, match="there is nothing at"):
        run("produce", tmp_path / "nowhere", tmp_path / "made", "--to", BLOCKWISE)


def test_without_pytorch_the_message_says_what_to_install(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for arguments in (
        ("produce", source, tmp_path / "made", "--to", BLOCKWISE),
        ("decode", source, tmp_path / "made", "--to", "plain.bf16@1"),
    ):
        with pytest.raises(click.UsageError, match=r"pip install 'tensorhub-contracts\[torch\]'"):
            run(*arguments)


def test_help_and_refusals_import_no_pytorch(tmp_path: Path, source: Path) -> None:
    """What headers alone decide is answered as fast as an inspection."""
    told = ["produce", str(source), str(tmp_path / "made"), "--to", BLOCKWISE, "--skip", "*"]
    for arguments in (["--help"], ["produce", "--help"], told):
        command = [sys.executable, "-X", "importtime", str(TENSORHUB), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert process.returncode == (1 if arguments is told else 0)
        assert not [line for line in process.stderr.splitlines() if line.rpartition("|")[2].strip() in ("torch", "numpy")]


def test_a_destination_is_never_overwritten(tmp_path: Path, source: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("link", "file", "folder"):
        (violation,) = refused("produce", source, tmp_path / name, "--to", ROWWISE)
        assert violation["code"] == "destination-exists"
    assert refused("produce", source, source, "--to", ROWWISE)[0]["code"] == "destination-exists"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_reads_what_is_produced(tmp_path: Path, tied: bool) -> None:
    """Shapes are multiples of 128: for others transformers 5.24 gives wrong values or raises, as the README shows."""
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    sizes = {**_SIZES, "hidden_size": 256, "intermediate_size": 384, "head_dim": 64, "tie_word_embeddings": tied}
    _built(lambda: LlamaForCausalLM(LlamaConfig(**sizes))).save_pretrained(tmp_path / "dense")
    skip = ("--skip", "*embed*") if tied else ("--skip", "*embed*", "--skip", "lm_head.weight")
    report = done("produce", tmp_path / "dense", tmp_path / "made", "--to", BLOCKWISE, *skip)
    assert len(report["quantized"]) == 14
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert sorted(config["quantization_config"]["modules_to_not_convert"]) == ["lm_head", "model.embed_tokens"]
    model, loading = AutoModelForCausalLM.from_pretrained(
        tmp_path / "made", quantization_config=FineGrainedFP8Config(dequantize=True), dtype=torch.bfloat16, output_loading_info=True
    )
    assert not any(loading.values())
    tensors, found = load(tmp_path / "made"), model.state_dict()
    for name in report["quantized"]:
        expected = dequantize_block_scaled(tensors[name], tensors[f"{name}_scale_inv"], out_dtype=torch.bfloat16)
        assert torch.equal(found[name], expected), name
    assert torch.equal(found["model.embed_tokens.weight"], tensors["model.embed_tokens.weight"])


def test_a_llama_of_sizes_that_leave_partial_blocks(tmp_path: Path) -> None:
    report = done(
        "produce", dense_llama(tmp_path / "dense"), tmp_path / "made", "--to", BLOCKWISE, "--skip", "*embed*", "--skip", "lm_head.*"
    )
    assert inspect(tmp_path / "made").unit_count == len(report["quantized"]) == 14
    assert report["files_copied"] == ["generation_config.json"]

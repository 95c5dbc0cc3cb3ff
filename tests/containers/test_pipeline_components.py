"""Pipeline roots: `model_index.json` lists components, each a checkpoint in a folder of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.pipeline import weight_components
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import Tensors, shard_name, write_checkpoint, write_index, write_sparse
from tests.support.refusals import findings, refused_alone, within

BLOCKWISE = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
FP8: Tensors = {"blocks.0.to_q.weight": ("F8_E4M3", (256, 384)), "blocks.0.to_q.weight_scale_inv": ("F32", (2, 3))}
UNQUANTIZED: Tensors = {"encoder.weight": ("BF16", (8, 16))}
LISTED: dict[str, Any] = {
    "_class_name": "FluxPipeline",
    "_diffusers_version": "0.35.0",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "image_encoder": [None, None],
    "safety_checker": None,
    "requires_safety_checker": True,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pipeline as diffusers saves it: two FP8 shards, a BF16 text encoder, a VAE, and folders without weights."""
    placement = dict(zip(FP8, (1, 2), strict=True))
    write_checkpoint(tmp_path / "transformer", FP8, config=BLOCKWISE, shards=2, base="diffusion_pytorch_model", placement=placement)
    write_checkpoint(tmp_path / "text_encoder", UNQUANTIZED, config={"model_type": "clip"})
    write_checkpoint(tmp_path / "vae", {"decoder.weight": ("F32", (4, 4))}, config={}, base="diffusion_pytorch_model")
    for name, file in (("scheduler", "scheduler_config.json"), ("tokenizer", "tokenizer_config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    (tmp_path / "model_index.json").write_text(json.dumps(LISTED))
    return tmp_path


def relist(root: Path, **changes: Any) -> None:
    (root / "model_index.json").write_text(json.dumps({**LISTED, **changes}))


def test_components_with_weights_are_listed_and_the_others_are_not(root: Path) -> None:
    assert weight_components(root) == ("text_encoder", "transformer", "vae")


def test_each_component_is_inspected_by_itself_with_its_own_configuration(root: Path) -> None:
    found = {name: inspect(root, component=name) for name in weight_components(root)}
    assert {name: inspection.contract for name, inspection in found.items()} == {
        "text_encoder": "plain.bf16@1",
        "transformer": "hf.fp8-blockwise@1",
        "vae": "plain.f32@1",
    }, {name: findings(inspection) for name, inspection in found.items() if inspection.violations}
    assert all(inspection.component == name and inspection.path == str(root) for name, inspection in found.items())


def test_a_component_has_the_same_verdict_as_its_folder(root: Path) -> None:
    for name in weight_components(root):
        by_component, by_folder = read_checkpoint(root, name), read_checkpoint(root / name)
        assert by_component.headers_digest == by_folder.headers_digest
        assert by_component.tensors == by_folder.tensors
        assert by_component.bytes_read - by_folder.bytes_read in (0, (root / "model_index.json").stat().st_size)


def test_shards_of_diffusers_are_found_by_their_index_and_without_it(root: Path) -> None:
    names = [shard_name(number, 2, "diffusion_pytorch_model") for number in (1, 2)]
    checkpoint = read_checkpoint(root, "transformer")
    assert checkpoint.index_name == "diffusion_pytorch_model.safetensors.index.json"
    assert [shard.name for shard in checkpoint.shards] == names
    (root / "transformer" / checkpoint.index_name).unlink()
    assert [shard.name for shard in read_checkpoint(root, "transformer").shards] == names


def test_a_variant_beside_the_canonical_shards_is_reported_and_not_read(root: Path) -> None:
    (root / "vae" / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")
    checkpoint = read_checkpoint(root, "vae")
    assert [shard.name for shard in checkpoint.shards] == ["diffusion_pytorch_model.safetensors"]
    assert checkpoint.extra_files == ("diffusion_pytorch_model.fp16.safetensors",)


def test_a_root_without_a_component_asks_for_one_and_lists_those_with_weights(root: Path) -> None:
    violation = refused_alone("component-required", read_checkpoint, root)
    assert violation.object == str(root)
    assert violation.found == "a pipeline root with the components text_encoder, transformer, vae"


@pytest.mark.parametrize(
    "name", ["unet", "Transformer", "transformer ", "image_encoder", "safety_checker", "requires_safety_checker", "_class_name"]
)
def test_an_unknown_component_is_refused_listing_the_known_ones(name: str, root: Path) -> None:
    violation = refused_alone("component-unknown", read_checkpoint, root, name)
    assert violation.object == name
    assert all(known in violation.found for known in ("text_encoder", "transformer", "vae"))


@pytest.mark.parametrize(
    "name", ["..", ".", "../outside", "/etc", "transformer/..", "vae/../transformer", "a\\b", "transformer/", "vae\0", "//"]
)
def test_a_component_that_is_no_folder_name_is_refused(name: str, root: Path) -> None:
    write_checkpoint(root.parent / "outside", UNQUANTIZED)
    violation = refused_alone("component-unknown", read_checkpoint, root, name)
    assert violation.object == name
    assert "transformer" in violation.found


@pytest.mark.parametrize("name", ["..", "../outside", "/etc", "a/b", ""])
def test_a_model_index_cannot_lead_out_of_the_folder(name: str, root: Path) -> None:
    write_checkpoint(root.parent / "outside", UNQUANTIZED)
    relist(root, **{name: ["diffusers", "Model"]})
    assert weight_components(root) == ("text_encoder", "transformer", "vae")
    if name:
        refused_alone("component-unknown", read_checkpoint, root, name)


def test_a_component_whose_folder_is_missing_counts_and_is_refused_by_name(root: Path) -> None:
    relist(root, text_encoder_2=["transformers", "T5EncoderModel"])
    assert "text_encoder_2" in weight_components(root)
    violation = refused_alone("component-unknown", read_checkpoint, root, "text_encoder_2")
    assert violation.object == "text_encoder_2"
    assert "no such folder" in violation.found


def test_a_component_with_a_configuration_and_no_weights_counts_and_is_refused(root: Path) -> None:
    (root / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert "vae" in weight_components(root)
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, root, "vae")
    assert violation.object == str(root / "vae")


def test_a_component_with_only_a_pickle_counts_and_is_refused_naming_it(root: Path) -> None:
    path = root / "vae" / "diffusion_pytorch_model.safetensors"
    path.rename(path.with_suffix(".bin"))
    assert "vae" in weight_components(root)
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, root, "vae")
    assert "diffusion_pytorch_model.bin" in violation.found


def test_a_component_without_weights_on_purpose_is_said_to_have_none(root: Path) -> None:
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, root, "scheduler")
    assert violation.object == str(root / "scheduler")


def test_a_fault_in_one_component_says_nothing_of_another(root: Path) -> None:
    os.truncate(root / "vae" / "diffusion_pytorch_model.safetensors", 100)
    assert inspect(root, component="vae").contract is None
    assert inspect(root, component="transformer").contract == "hf.fp8-blockwise@1"


def test_a_component_that_is_a_link_into_a_cache_is_read(root: Path) -> None:
    (root / "vae").rename(root.parent / "elsewhere")
    (root / "vae").symlink_to(root.parent / "elsewhere")
    assert inspect(root, component="vae").contract == "plain.f32@1"


def test_weights_in_the_root_beside_a_model_index_are_a_checkpoint(root: Path) -> None:
    write_sparse(root / "model.safetensors", UNQUANTIZED)
    assert set(read_checkpoint(root).tensors) == set(UNQUANTIZED)


def test_a_sharded_checkpoint_in_the_root_whose_shards_are_missing_is_not_taken_for_a_pipeline(root: Path) -> None:
    write_index(root / "model.safetensors.index.json", {"a": shard_name(1, 2), "b": shard_name(2, 2)})
    assert {code for code, _ in findings(inspect(root))} & {"index-shard-missing", "component-required"}


def test_without_a_model_index_a_sub_folder_is_a_component(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "transformer", UNQUANTIZED)
    assert weight_components(tmp_path) == ()
    assert set(read_checkpoint(tmp_path, "transformer").tensors) == set(UNQUANTIZED)
    violation = refused_alone("component-unknown", read_checkpoint, tmp_path, "vae")
    assert "transformer" in violation.found


def test_a_component_of_a_file_is_refused_and_not_ignored(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", UNQUANTIZED)
    violation = refused_alone("component-unknown", read_checkpoint, path, "vae")
    assert violation.object == "vae"


def test_a_component_of_bytes_is_refused_and_not_ignored(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", UNQUANTIZED)
    violation = refused_alone("component-unknown", read_checkpoint, path.read_bytes(), "vae")
    assert violation.object == "vae"


BROKEN = {
    "cut off": (b'{"vae": ["diff', "at character"),
    "empty": (b"", ""),
    "a list": (b"[]", "list"),
    "byte-order mark": (b"\xef\xbb\xbf{}", "byte-order mark"),
    "not UTF-8": (b'{"\xff": null}', "not UTF-8"),
    "200000 brackets": (b'{"a":' + b"[" * 200_000, "nested too deeply"),
    "a component twice": (b'{"vae": ["diffusers", "A"], "vae": [null, null]}', "vae"),
}


@pytest.mark.parametrize(("text", "found"), BROKEN.values(), ids=BROKEN)
def test_a_broken_model_index_is_refused_by_name(text: bytes, found: str, root: Path) -> None:
    (root / "model_index.json").write_bytes(text)
    for component in ("", "vae"):
        violation = refused_alone("config-json", read_checkpoint, root, component)
        assert violation.object == "model_index.json"
        assert found in f"{violation.expected} {violation.found}"


@pytest.mark.parametrize("kind", ["broken link", "link to a pipe", "folder", "pipe"])
def test_a_model_index_that_is_no_file_is_refused_and_does_not_hang(kind: str, root: Path) -> None:
    index = root / "model_index.json"
    index.unlink()
    if kind == "broken link":
        index.symlink_to("nowhere")
    elif kind == "folder":
        index.mkdir()
    elif kind == "pipe":
        os.mkfifo(index)
    else:
        os.mkfifo(root / "pipe")
        index.symlink_to("pipe")
    with within(2):
        inspection = inspect(root)
    assert {code for code, _ in findings(inspection)} <= {"file-broken-link", "file-unreadable", "config-json"}
    assert {name for _, name in findings(inspection)} == {"model_index.json"}

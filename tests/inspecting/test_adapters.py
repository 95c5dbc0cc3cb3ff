"""An adapter is refused as one, before any contract is named; models whose names use the same words are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tensorhub_decoders.hf_fp8_blockwise import inspect_hf_fp8_blockwise

from tensorhub_contracts import Inspection, Refusal, inspect, load
from tests.support.checkpoint_files import Tensors, file_bytes, header_bytes, payload_size, write_checkpoint, write_sparse
from tests.support.cli import tensorhub
from tests.support.refusals import well_formed
from tests.support.trees import BLOCKWISE, Tree, assert_accepted, bf16, fp8_config, judge, unit

ADAPTER_CONFIG = {"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B", "r": 16}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def pairs(first: str, second: str, *modules: str, rank: int = 16) -> Tree:
    """Return the two matrices of each module, [rank, 512] and [512, rank]."""
    tree: Tree = {}
    for module in modules:
        tree |= {**bf16(f"{module}.{first}", rank, 512), **bf16(f"{module}.{second}", 512, rank)}
    return tree


PEFT = pairs("lora_A.weight", "lora_B.weight", Q, Q.replace("q_proj", "v_proj"))
KOHYA = pairs("lora_down.weight", "lora_up.weight", "lora_unet_double_blocks_0_img_attn_proj", rank=4)
MODEL: Tree = {**bf16("model.embed_tokens.weight", 1000, 512), **bf16("model.layers.0.self_attn.q_proj.base_layer.weight", 512, 512)}


def refused_as_adapter(inspection: Inspection) -> str:
    """Assert that this is the one reason and that no contract is named; return what was found."""
    assert inspection.codes == ("adapter-not-a-model",), inspection
    assert (inspection.contract, inspection.nearest, inspection.resembles) == (None, None, ())
    (violation,) = well_formed(inspection.violations)
    assert violation.object == inspection.path
    assert "contract" not in violation.remedy
    return violation.found


ADAPTERS: dict[str, Tensors] = {
    "PEFT LoRA": PEFT,
    "PEFT LoRA with the adapter's name": pairs("lora_A.default.weight", "lora_B.default.weight", Q),
    "PEFT LoRA of an embedding": pairs("lora_embedding_A", "lora_embedding_B", "base_model.model.model.embed_tokens"),
    "PEFT DoRA": {**PEFT, f"{Q}.lora_magnitude_vector": ("F32", (512,))},
    "PEFT with a layer that was trained whole": {**PEFT, **bf16("base_model.model.lm_head.weight", 1000, 512)},
    "PEFT IA3": {f"{Q}.ia3_l": ("F32", (512, 1))},
    "PEFT LoHa": bf16(f"{Q}.hada_w1_a", 512, 8) | bf16(f"{Q}.hada_w1_b", 8, 512) | bf16(f"{Q}.hada_w2_a", 512, 8),
    "PEFT LoKr": bf16(f"{Q}.lokr_w1", 8, 8) | bf16(f"{Q}.lokr_w2_a", 64, 8) | bf16(f"{Q}.lokr_w2_b", 8, 64),
    "PEFT OFT": bf16(f"{Q}.oft_R.weight", 16, 496),
    "PEFT prompt tuning": bf16("prompt_embeddings", 20, 512),
    "kohya": {**KOHYA, "lora_unet_double_blocks_0_img_attn_proj.alpha": ("F32", ())},
    "kohya DoRA": {**KOHYA, "lora_unet_double_blocks_0_img_attn_proj.dora_scale": ("F32", (512, 1))},
    "LyCORIS differences": bf16("lycoris_blocks_0_attn_to_q.diff", 512, 512) | bf16("lycoris_blocks_0_attn_to_q.diff_b", 512),
    "diffusers": pairs("lora.down.weight", "lora.up.weight", "unet.down_blocks.0.attentions.0.to_q"),
    "diffusers with processors": pairs("down.weight", "up.weight", "unet.down_blocks.0.attn1.processor.to_q_lora"),
    "diffusers with names of PEFT": pairs("lora_A.weight", "lora_B.weight", "transformer.blocks.0.attn.to_q"),
    "8-bit floats": {name: ("F8_E4M3", shape) for name, (_, shape) in KOHYA.items()},
}


@pytest.mark.parametrize("tensors", ADAPTERS.values(), ids=ADAPTERS)
def test_an_adapter_is_recognized_by_its_names_alone(tensors: Tensors, tmp_path: Path) -> None:
    found = refused_as_adapter(judge(tmp_path, tensors))
    assert found.startswith("an adapter: ")
    assert next(iter(tensors)) in found
    content = file_bytes(header_bytes(tensors), bytes(payload_size(tensors)))
    refused_as_adapter(inspect(content))


def test_what_it_adapts_its_rank_and_its_modules_are_said(tmp_path: Path) -> None:
    inspection = judge(tmp_path, PEFT, files={"adapter_config.json": ADAPTER_CONFIG})
    found = refused_as_adapter(inspection)
    assert found == f"an adapter of Qwen/Qwen3-8B: 4 tensors such as {Q}.lora_A.weight; LoRA of rank 16 on 2 modules"
    kohya = judge(tmp_path, {**KOHYA, **pairs("lora_down.weight", "lora_up.weight", "lora_te1_x", rank=32)})
    assert refused_as_adapter(kohya).endswith("LoRA of ranks 4 to 32 on 2 modules")


@pytest.mark.parametrize("name", ["x" * 100_000, "a\x1b[31m\nb\u202e", "\ud800"])
def test_a_name_of_a_base_is_bounded_and_printable(name: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, PEFT, files={"adapter_config.json": {**ADAPTER_CONFIG, "base_model_name_or_path": name}})
    found = refused_as_adapter(inspection)
    assert found.isprintable()
    assert len(found) < 600


@pytest.mark.parametrize("content", ["", "[]", "{", '{"base_model_name_or_path": 3}'])
def test_a_configuration_that_says_nothing_changes_nothing(content: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, PEFT)
    (tmp_path / "adapter_config.json").write_text(content)
    assert refused_as_adapter(inspect(tmp_path)).startswith("an adapter: ")


@pytest.mark.parametrize("metadata", [{"ss_network_module": "lycoris.kohya"}, {"modelspec.architecture": "flux-1-dev/lora"}])
def test_a_header_that_says_so_is_believed(metadata: dict[str, str], tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "x.safetensors", bf16("a.unknown_w1", 4, 512), {**metadata, "ss_base_model_version": "sdxl_v1"})
    assert refused_as_adapter(inspect(path)).startswith("an adapter of sdxl_v1: 1 tensor ")


def test_a_method_that_nobody_knows_is_recognized_by_what_lies_beside_it(tmp_path: Path) -> None:
    tensors = bf16(f"{Q}.new_method_w", 16, 512)
    write_sparse(tmp_path / "adapter_model.safetensors", tensors)
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG))
    assert "Qwen/Qwen3-8B" in refused_as_adapter(inspect(tmp_path))
    assert "Qwen/Qwen3-8B" in refused_as_adapter(inspect(tmp_path / "adapter_model.safetensors"))


def test_an_adapter_that_was_never_merged_is_named_beside_the_weights(tmp_path: Path) -> None:
    merged = {**MODEL, **pairs("lora_A.default.weight", "lora_B.default.weight", "model.layers.0.self_attn.q_proj", rank=8)}
    found = refused_as_adapter(judge(tmp_path, merged, {"architectures": ["Qwen3ForCausalLM"]}))
    assert found.startswith("the weights of a model, and in them an adapter that is not merged: 2 tensors such as ")
    assert "model.layers.0.self_attn.q_proj.lora_A.default.weight" in found
    assert "rank 8" in found
    quantized = {**unit("model.layers.0.mlp.up_proj", 512, 256), **PEFT}
    assert "in them an adapter" in refused_as_adapter(judge(tmp_path, quantized, fp8_config()))


def test_every_way_in_refuses_an_adapter(tmp_path: Path) -> None:
    tree = write_checkpoint(tmp_path / "tree", PEFT)
    (tree / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG))
    for call in (lambda: load(tree, dtype="BF16", resident=False), lambda: inspect_hf_fp8_blockwise(tree)):
        with pytest.raises(Refusal) as caught:
            call()
        assert tuple(caught.value.codes) == ("adapter-not-a-model",)
    for command in (("inspect",), ("artifact",)):
        done = tensorhub(*command, tree)
        assert (done.code, "adapter-not-a-model" in done.out + done.err) == (1, True), command


def test_nothing_is_produced_of_an_adapter(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tree = write_checkpoint(tmp_path / "tree", PEFT)
    done = tensorhub("produce", tree, tmp_path / "out", "--to", BLOCKWISE)
    assert (done.code, "adapter-not-a-model" in done.out + done.err) == (1, True)
    assert not (tmp_path / "out").exists()


# What must be accepted all the same.

MODELS: dict[str, Tensors] = {
    "DeepSeek's low ranks": bf16("model.layers.0.self_attn.q_a_proj.weight", 1536, 512)
    | bf16("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 576, 512),
    "RWKV-7 of fla": bf16("model.layers.0.attn.w_lora.lora.0.weight", 64, 512) | bf16("model.layers.0.attn.w_lora.lora.2.weight", 512, 64),
    "RWKV-6": bf16("blocks.0.att.time_maa_w1", 512, 160) | bf16("blocks.0.att.time_decay_w2", 64, 512),
    "a vocoder": bf16("resblocks.0.activations.0.act.alpha", 512) | bf16("conv_post.weight", 1, 32, 7),
    "Zamba2": bf16("model.layers.6.shared_transformer.feed_forward.gate_up_proj_adapter_list.0.0.weight", 128, 512),
    "prompts of a vision model": bf16("prompt_embeddings", 20, 512) | bf16("blocks.0.attn.qkv.weight", 1536, 512),
    "words inside words": bf16("model.flora_A.weight", 4, 4) | bf16("explora.downsample.weight", 4, 4) | bf16("soft_R.weight", 4, 4),
    "a head called so": bf16("lora_head.weight", 4, 4) | bf16("lora.weight", 4, 4),
    "biases only": bf16("layers.0.bias", 512) | bf16("layers.1.scalar", 1) | bf16("layers.0.weight", 4, 4),
}


@pytest.mark.parametrize("tensors", MODELS.values(), ids=MODELS)
def test_a_model_whose_names_use_such_words_is_a_model(tensors: Tensors, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, tensors), "plain.bf16@1")


def phi_4(**config: Any) -> tuple[Tree, dict[str, Any]]:
    """Phi-4-multimodal, reduced: its class is made with two adapters in it, and its configuration states them."""
    module = "model.layers.0.self_attn.qkv_proj"
    tree: Tree = bf16(f"{module}.base_layer.weight", 512, 512)
    for name, rank in (("speech", 320), ("vision", 256)):
        tree |= {**bf16(f"{module}.lora_A.{name}.weight", rank, 512), **bf16(f"{module}.lora_B.{name}.weight", 512, rank)}
    stated = {"speech_lora": {"r": 320, "lora_alpha": 640}, "vision_lora": {"r": 256, "lora_alpha": 512}}
    return tree, {"model_type": "phi4mm", **stated, **config}


def test_an_adapter_that_the_model_states_as_its_part_is_no_adapter(tmp_path: Path) -> None:
    tree, config = phi_4()
    assert_accepted(judge(tmp_path, tree, config), "plain.bf16@1")


@pytest.mark.parametrize("change", [{"speech_lora": None}, {"speech_lora": {"r": 16}}, {"vision_lora": {"r": True}}, {"vision_lora": {}}])
def test_one_that_is_stated_otherwise_is_an_adapter(change: dict[str, Any], tmp_path: Path) -> None:
    tree, config = phi_4(**change)
    assert "in them an adapter" in refused_as_adapter(judge(tmp_path, tree, config))


def test_a_model_beside_an_adapter_is_a_model(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, bf16("model.embed_tokens.weight", 1000, 512), config={"architectures": ["X"]})
    write_sparse(tmp_path / "adapter_model.safetensors", PEFT)
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG))
    inspection = inspect(tmp_path)
    assert_accepted(inspection, "plain.bf16@1")
    assert any("adapter_model.safetensors" in note for note in inspection.notes)


def test_the_folder_that_python_runs_in_says_nothing_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG))
    tensors = bf16("a.weight", 4, 4)
    assert_accepted(inspect(file_bytes(header_bytes(tensors), bytes(payload_size(tensors)))), "plain.bf16@1")

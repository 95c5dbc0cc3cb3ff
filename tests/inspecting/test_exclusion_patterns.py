"""Exclusion lists hold shell patterns, and what a list says of a sound release gives no note."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.trees import (
    BLOCKWISE,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    bf16,
    compressed_tensors_config,
    fp8_config,
    judge,
    noted,
    unit,
)

GPT_OSS_LIST = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
GPT_OSS = {
    "vocab_size": 201088,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": GPT_OSS_LIST},
}
UNDECLARED = "unquantized and not declared as such"


def gpt_oss(layers: int = 24) -> Tree:
    """Return gpt-oss-20b: names of its index, shapes from its configuration."""
    tree: Tree = {
        **bf16("model.embed_tokens.weight", 201088, 2880),
        **bf16("lm_head.weight", 201088, 2880),
        **bf16("model.norm.weight", 2880),
    }
    for number in range(layers):
        layer = f"model.layers.{number}"
        for name, rows in (("q_proj", 4096), ("k_proj", 512), ("v_proj", 512)):
            tree |= {**bf16(f"{layer}.self_attn.{name}.weight", rows, 2880), **bf16(f"{layer}.self_attn.{name}.bias", rows)}
        tree |= {**bf16(f"{layer}.self_attn.o_proj.weight", 2880, 4096), **bf16(f"{layer}.self_attn.o_proj.bias", 2880)}
        tree |= {
            **bf16(f"{layer}.self_attn.sinks", 64),
            **bf16(f"{layer}.mlp.router.weight", 32, 2880),
            **bf16(f"{layer}.mlp.router.bias", 32),
        }
        tree |= {**bf16(f"{layer}.input_layernorm.weight", 2880), **bf16(f"{layer}.post_attention_layernorm.weight", 2880)}
        for name, rows in (("gate_up_proj", 5760), ("down_proj", 2880)):
            experts = f"{layer}.mlp.experts.{name}"
            tree[f"{experts}_blocks"] = ("U8", (32, rows, 90, 16))
            tree[f"{experts}_scales"] = ("U8", (32, rows, 90))
            tree |= bf16(f"{experts}_bias", 32, rows)
    return tree


def test_the_real_list_of_gpt_oss_matches_and_leaves_nothing_undeclared(tmp_path: Path) -> None:
    inspection = judge(tmp_path, gpt_oss(), GPT_OSS)
    assert_named_without_decoder(inspection, "openai.mxfp4@1")
    assert inspection.unit_count == 48
    assert (inspection.exclusions.entries, inspection.exclusions.matched) == (4, 4)
    assert not noted(inspection, "match no tensor")
    assert not noted(inspection, "match any tensor")
    assert not noted(inspection, UNDECLARED)
    assert not noted(inspection, "expert")


def test_a_projection_that_no_pattern_covers_is_still_a_surprise(tmp_path: Path) -> None:
    """The control: one layer's attention is left out of the list."""
    config = {
        **GPT_OSS,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.1.*", *GPT_OSS_LIST[1:]]},
    }
    inspection = judge(tmp_path, gpt_oss(2), config)
    assert noted(inspection, UNDECLARED, "model.layers.0.self_attn.q_proj.weight", "1 more")
    assert not noted(inspection, UNDECLARED, "model.layers.1")


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("model.layers.*.self_attn", True),  # a module with all that is under it
        ("model.layers.*.self_attn*", True),
        ("model.layers.*.self_attn.", True),
        ("*self_attn*", True),  # ModelOpt
        ("*.self_attn.q_proj", True),  # Quark
        ("*q_proj", True),
        ("model*", True),
        ("model.layers.?.self_attn", True),
        ("*", True),
        ("model.layers.*", True),
        ("model.*.q_proj", True),  # a star passes dots, as fnmatch has it
        ("model.layers.*.self_att", False),  # ends inside a segment
        ("model.layers.*.q", False),
        ("layers.*.self_attn", False),  # from the beginning, as fnmatch has it
        ("model.layers.??.self_attn", False),
        ("model.layers.*.self_attn.q_proj.weight", False),
        ("model.layers.*.mlp", False),
        ("modelxlayers.*", False),  # a dot is a dot
    ],
)
def test_a_star_is_any_text_and_a_pattern_ends_where_a_segment_does(entry: str, covered: bool, tmp_path: Path) -> None:
    tree: Tree = {**unit("model.layers.0.self_attn.q_proj", 512, 256), **unit("other", 512, 256)}
    inspection = judge(tmp_path, tree, fp8_config(modules_to_not_convert=[entry]))
    assert_accepted(inspection, BLOCKWISE, 2)
    report = inspection.exclusions
    assert report.unmatched == (() if covered else (entry,))
    contradicted = [entry for entry, _ in report.contradicted]
    assert contradicted == ([entry] if covered else [])


def test_a_class_of_characters_is_not_evaluated_and_then_nothing_is_said_to_be_undeclared(tmp_path: Path) -> None:
    tree: Tree = {**unit("model.layers.0.mlp.up_proj", 512, 256), **bf16("model.layers.0.mlp.down_proj.weight", 256, 512)}
    inspection = judge(tmp_path, tree, fp8_config(modules_to_not_convert=["model.layers.[0-3].mlp.down_proj"]))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert noted(inspection, "not evaluated", "model.layers.[0-3].mlp.down_proj")
    assert not noted(inspection, UNDECLARED)
    assert not noted(inspection, "match any tensor")


@pytest.mark.parametrize("pattern", ["*a" * 400 + "b", "a*" * 499 + "b", "?*" * 400 + "b"])
def test_patterns_take_linear_time(pattern: str, tmp_path: Path) -> None:
    """A matcher that goes back over its choices would take longer than the universe lasts."""
    tree: Tree = {**unit("a" * 2000, 512, 256), **unit("a." * 1000 + "c", 512, 256)}
    begun = time.perf_counter()
    inspection = judge(tmp_path, tree, fp8_config(modules_to_not_convert=[pattern]))
    assert time.perf_counter() - begun < 5
    assert_accepted(inspection, BLOCKWISE, 2)
    assert inspection.exclusions.unmatched == (pattern,)


def test_an_official_block_fp8_release_gives_no_note_of_its_embedding(tmp_path: Path) -> None:
    """Qwen's lists never name the embedding; the head of a tied model is listed and has no tensor."""
    tree: Tree = {**bf16("model.embed_tokens.weight", 151936, 256), **unit("model.layers.0.mlp.up_proj", 512, 256)}
    config = {**fp8_config(modules_to_not_convert=["lm_head"]), "vocab_size": 151936, "tie_word_embeddings": True}
    inspection = judge(tmp_path, tree, config)
    assert_accepted(inspection, BLOCKWISE, 1)
    assert not inspection.notes
    untied = judge(tmp_path, tree, {**config, "tie_word_embeddings": False})
    assert noted(untied, "0 of 1 exclusion entries")


@pytest.mark.parametrize(
    "name", ["model.embed_tokens", "transformer.wte", "visual.pos_embed", "lm_head", "shared", "mlp.gate", "mlp.router"]
)
def test_what_no_producer_converts_is_no_surprise(name: str, tmp_path: Path) -> None:
    rows = 64 if name.startswith("mlp.") else 1000
    tree: Tree = {**bf16(f"{name}.weight", rows, 256), **bf16("listed.weight", 16, 16), **unit("model.layers.0.mlp.up_proj", 512, 256)}
    counts = {"vocab_size": 1000, "num_experts": 64}
    inspection = judge(tmp_path, tree, {**fp8_config(modules_to_not_convert=["listed"]), "text_config": counts})
    assert_accepted(inspection, BLOCKWISE, 1)
    assert not inspection.notes


@pytest.mark.parametrize("name", ["model.layers.0.mlp.down_proj", "mtp.eh_proj", "mlp.gate", "model.layers.0.self_attn.q_proj"])
def test_a_projection_that_no_list_names_is_a_surprise(name: str, tmp_path: Path) -> None:
    tree: Tree = {**bf16(f"{name}.weight", 128, 256), **bf16("listed.weight", 16, 16), **unit("model.layers.0.mlp.up_proj", 512, 256)}
    config = {**fp8_config(modules_to_not_convert=["listed"]), "vocab_size": 1000, "num_experts": 64}
    inspection = judge(tmp_path, tree, config)
    assert_accepted(inspection, BLOCKWISE, 1)
    assert noted(inspection, UNDECLARED, f"{name}.weight")


@pytest.mark.parametrize(("targets", "surprise"), [(["Linear"], True), (["re:.*experts.*"], False)])
def test_a_declaration_that_names_what_is_quantized_leaves_the_rest_out(targets: list[str], surprise: bool, tmp_path: Path) -> None:
    tree: Tree = {
        **bf16("model.embed_tokens.weight", 512, 256),
        **bf16("model.layers.0.self_attn.q_proj.weight", 128, 256),
        **bf16("lm_head.weight", 512, 256),
        "model.layers.0.mlp.experts.0.up_proj.weight": ("F8_E4M3", (512, 256)),
        "model.layers.0.mlp.experts.0.up_proj.weight_scale": ("BF16", (512, 1)),
    }
    config = compressed_tensors_config("channel", dynamic=False, symmetric=True)
    config["quantization_config"] |= {"ignore": ["lm_head"], "format": "float-quantized"}
    config["quantization_config"]["config_groups"]["group_0"]["targets"] = targets
    inspection = judge(tmp_path, tree, config)
    assert_named_without_decoder(inspection, "compressed-tensors.fp8-channel@1")
    assert noted(inspection, UNDECLARED) == surprise
    assert not noted(inspection, "embed_tokens")

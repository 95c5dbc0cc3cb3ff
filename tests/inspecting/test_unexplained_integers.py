"""Packed and plain integers are in no plain tree and in no FP8 one, whatever declares them; bookkeeping is told by a rule.

The trees are reductions of public reports: names, dtypes and shapes as their producers write them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import Refusal, inspect
from tensorhub_contracts.hub.artifact import record_artifact
from tensorhub_contracts.plugins.installed import installed_registry
from tests.support.checkpoint_files import write_checkpoint, write_sparse
from tests.support.trees import BLOCKWISE, Tree, assert_accepted, bf16, fp8_config, judge, stacked_unit, unit, why

NF4: Tree = {
    "double_blocks.0.img_attn.qkv.weight": ("U8", (14155776, 1)),
    "double_blocks.0.img_attn.qkv.weight.absmax": ("F32", (442368,)),
    "double_blocks.0.img_attn.qkv.weight.quant_map": ("F32", (16,)),
    "double_blocks.0.img_attn.qkv.weight.quant_state.bitsandbytes__nf4": ("U8", (79,)),
    "double_blocks.0.img_attn.qkv.bias": ("BF16", (9216,)),
    "img_in.weight": ("BF16", (3072, 64)),
}
LLM_INT8: Tree = {
    "q_proj.weight": ("I8", (512, 512)),
    "q_proj.SCB": ("F32", (512,)),
    **bf16("norm.weight", 512),
    **bf16("lm_head.weight", 64, 512),
}
MLX: Tree = {
    "layers.0.linear_attn.in_proj_qkv.weight": ("U32", (10240, 960)),
    "layers.0.linear_attn.in_proj_qkv.scales": ("F16", (10240, 40)),
    "layers.0.linear_attn.in_proj_qkv.biases": ("F16", (10240, 40)),
    "norm.weight": ("F16", (64,)),
}
MLX_MXFP8: Tree = {"a.weight": ("U32", (512, 128)), "a.scales": ("U8", (512, 16)), **bf16("norm.weight", 512)}
GPTQ: Tree = {
    "layers.0.q_proj.qweight": ("I32", (512, 4096)),
    "layers.0.q_proj.qzeros": ("I32", (32, 512)),
    "layers.0.q_proj.scales": ("F16", (32, 4096)),
    "layers.0.q_proj.g_idx": ("I32", (4096,)),
    "lm_head.weight": ("F16", (64, 64)),
}
SVDQUANT: Tree = {
    "transformer_blocks.0.qkv_proj.qweight": ("I8", (9216, 1536)),
    "transformer_blocks.0.qkv_proj.wscales": ("BF16", (48, 9216)),
    "transformer_blocks.0.qkv_proj.smooth_factor": ("BF16", (3072,)),
    "transformer_blocks.0.qkv_proj.proj_down": ("BF16", (3072, 32)),
    "transformer_blocks.0.qkv_proj.proj_up": ("BF16", (9216, 32)),
    "transformer_blocks.0.qkv_proj.bias": ("BF16", (9216,)),
}
HQQ: Tree = {"a.W_q": ("U8", (256, 512)), "a.scale": ("F16", (2048, 1)), "a.zero": ("F16", (2048, 1)), "b.weight": ("F16", (8, 8))}
EXL2: Tree = {
    "a.q_weight": ("I32", (64, 512)),
    "a.q_scale": ("I32", (4, 64)),
    "a.q_scale_max": ("F16", (4,)),
    "a.q_groups": ("I16", (8,)),
    "a.q_invperm": ("I16", (512,)),
    "b.weight": ("F16", (8, 8)),
}
EXL3: Tree = {"a.trellis": ("I16", (32, 32, 64)), "a.suh": ("F16", (512,)), "a.svh": ("F16", (512,)), "b.weight": ("F16", (8, 8))}
AQLM: Tree = {
    "a.codes": ("I8", (64, 64, 2)),
    "a.codebooks": ("F16", (2, 256, 1, 8)),
    "a.scales": ("F16", (64, 1, 1, 1)),
    "b.weight": ("F16", (8, 8)),
}
VPTQ: Tree = {
    "a.indices": ("I32", (1, 64, 128)),
    "a.centroids.weight": ("F16", (1, 4096)),
    "a.weight_scale": ("F16", (512,)),
    "a.weight_bias": ("F16", (512,)),
    "b.weight": ("F16", (8, 8)),
}
QUIP: Tree = {
    "a.Qidxs": ("I64", (64, 32)),
    "a.SU": ("F16", (512,)),
    "a.SV": ("F16", (512,)),
    "a.Wscale": ("F32", ()),
    "b.weight": ("F16", (8, 8)),
}
RAW_INT8: Tree = {"a.weight": ("I8", (512, 512)), **bf16("b.weight", 64, 64)}
QUANTO_INT8: Tree = {"a.weight._data": ("I8", (512, 512)), "a.weight._scale": ("BF16", (512, 1)), **bf16("b.weight", 64, 64)}
UNKNOWN: Tree = {"layers.0.q_proj.data": ("U8", (131072,)), **bf16("b.weight", 64, 64)}

METHODS: dict[str, tuple[Tree, str, str]] = {
    "bitsandbytes-nf4": (NF4, "double_blocks.0.img_attn.qkv.weight", "bitsandbytes (4 bits)"),
    "bitsandbytes-int8": (LLM_INT8, "q_proj.weight", "LLM.int8"),
    "mlx": (MLX, "layers.0.linear_attn.in_proj_qkv.weight", "MLX"),
    "mlx-mxfp8": (MLX_MXFP8, "a.weight", "MLX"),
    "gptq": (GPTQ, "layers.0.q_proj.qweight", "GPTQ"),
    "awq": ({name: each for name, each in GPTQ.items() if not name.endswith("g_idx")}, "layers.0.q_proj.qweight", "AWQ"),
    "svdquant": (SVDQUANT, "transformer_blocks.0.qkv_proj.qweight", "SVDQuant"),
    "hqq": (HQQ, "a.W_q", "HQQ"),
    "exl2": (EXL2, "a.q_weight", "EXL2"),
    "exl3": (EXL3, "a.trellis", "EXL3"),
    "aqlm": (AQLM, "a.codes", "AQLM"),
    "quip": (QUIP, "a.Qidxs", "QuIP#"),
    "quanto": (QUANTO_INT8, "a.weight._data", "Quanto"),
    "raw-int8": (RAW_INT8, "a.weight", "integers of 8 bits"),
    "flat-bytes": (UNKNOWN, "layers.0.q_proj.data", "integers of 8 bits"),
}


@pytest.mark.parametrize(("tree", "named", "method"), METHODS.values(), ids=METHODS)
def test_integers_without_a_declaration_are_in_no_plain_contract(tree: Tree, named: str, method: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, tree)
    assert inspection.contract is None
    assert inspection.nearest is None
    assert inspection.codes == ("tensor-unexplained",), why(inspection)
    faults = {each.object: each for each in inspection.violations}
    assert method in faults[named].found, why(inspection)
    integers = {name for name, (dtype, _) in tree.items() if dtype[0] in "IU"}
    assert set(faults) == integers, why(inspection)  # g_idx and a quantization state go with the weight that they belong to
    for text in ("Rename", "remove", "Restore", "plain."):
        assert text not in why(inspection)


def test_integers_beside_a_scale_that_the_registry_knows(tmp_path: Path) -> None:
    inspection = judge(tmp_path, VPTQ)
    assert inspection.codes == ("tensor-unexplained",), why(inspection)
    assert inspection.violations[0].object == "a.indices"
    assert "VPTQ" in inspection.violations[0].found


DECLARED: dict[str, tuple[Tree, dict[str, Any], dict[str, Any], str]] = {
    "gptq in config.json": (GPTQ, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}, {}, "GPTQ"),
    "gptq in its own file": (GPTQ, {}, {"quantize_config.json": {"bits": 4, "group_size": 128, "desc_act": True, "sym": True}}, "GPTQ"),
    "bitsandbytes": (NF4, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, {}, "bitsandbytes"),
    "mlx under its own key": (MLX, {"quantization": {"bits": 4, "group_size": 128, "a": {"bits": 6, "group_size": 128}}}, {}, "MLX"),
    "mlx under both": (
        MLX,
        {"quantization": {"bits": 4, "group_size": 128}, "quantization_config": {"bits": 4, "group_size": 128}},
        {},
        "MLX",
    ),
    "in a nested configuration": (GPTQ, {"llm_config": {"quantization_config": {"quant_method": "gptq"}}}, {}, "GPTQ"),
    "two levels down": (GPTQ, {"thinker_config": {"text_config": {"quantization_config": {"quant_method": "awq"}}}}, {}, "AWQ"),
    "another key": (GPTQ, {"compression_config": {"format": "pack-quantized"}}, {}, "pack-quantized"),
}


@pytest.mark.parametrize(("tree", "config", "files", "method"), DECLARED.values(), ids=DECLARED)
def test_a_declared_method_comes_first_and_alone(
    tree: Tree, config: dict[str, Any], files: dict[str, Any], method: str, tmp_path: Path
) -> None:
    inspection = judge(tmp_path, tree, config, files=files)
    assert inspection.codes == ("declaration-unknown",), why(inspection)
    assert inspection.nearest is None
    (violation,) = inspection.violations
    assert method in violation.found
    assert any(name in violation.found for name in tree), "what the units look like"
    assert "Take the configuration" not in violation.remedy


def test_a_declaration_in_a_header_counts(tmp_path: Path) -> None:
    declared = json.dumps({"method": "svdquant", "weight": {"dtype": "int4", "group_size": 64}})
    inspection = inspect(write_sparse(tmp_path / "m.safetensors", SVDQUANT, {"quantization_config": declared}))
    assert inspection.codes == ("declaration-unknown",), why(inspection)
    assert "SVDQuant" in inspection.violations[0].found
    dense = inspect(write_sparse(tmp_path / "d.safetensors", bf16("a.weight", 8, 8), {"quantization_config": "null", "format": "pt"}))
    assert_accepted(dense, "plain.bf16@1")


@pytest.mark.parametrize("nothing", [{"quant_algo": None, "kv_cache_quant_algo": None}, None, False, {}])
def test_a_declaration_of_nothing_declares_nothing(nothing: Any, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, bf16("a.weight", 8, 8), {"quantization": nothing}), "plain.bf16@1")


EXPERTS: dict[str, Tree] = {
    "gptq": {
        "mlp.experts.0.gate_proj.qweight": ("I32", (64, 512)),
        "mlp.experts.0.gate_proj.qzeros": ("I32", (4, 64)),
        "mlp.experts.0.gate_proj.scales": ("F16", (4, 512)),
        "mlp.experts.0.gate_proj.g_idx": ("I32", (512,)),
    },
    "mlx": {
        "mlp.experts.0.gate_proj.weight": ("U32", (512, 64)),
        "mlp.experts.0.gate_proj.scales": ("F16", (512, 8)),
        "mlp.experts.0.gate_proj.biases": ("F16", (512, 8)),
    },
    "a lone matrix": {"mlp.experts.0.gate_proj.weight": ("I8", (512, 512))},
    "a lone byte vector": {"mlp.experts.0.gate_proj.weight": ("U8", (262144,))},
    "under another name": {"mlp.experts.0.gate_proj.data": ("I16", (512, 512))},
}


@pytest.mark.parametrize("experts", EXPERTS.values(), ids=EXPERTS)
def test_integer_experts_beside_sound_units_are_refused_by_name(experts: Tree, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**unit("attn.q_proj", 256, 384), **experts}, fp8_config())
    assert inspection.contract is None
    named = {each.object for each in inspection.violations}
    assert {name for name, (dtype, _) in experts.items() if dtype[0] in "IU"} <= named, why(inspection)
    assert not any(name.startswith("attn") for name in named)
    with pytest.raises(Refusal):
        record_artifact([inspection], installed_registry())


BOOKKEEPING: Tree = {
    "position_ids": ("I64", (1, 577)),
    "embeddings.position_ids": ("I64", (1, 577)),
    "layers.0.attn.relative_position_index": ("I64", (64, 64)),
    "layers.1.attn.relative_position_index": ("I32", (2401, 2)),
    "layers.0.attn.mask": ("BOOL", (128, 128)),
    "h.0.attn.bias": ("U8", (1, 1, 1024, 1024)),
    "bn.num_batches_tracked": ("I64", ()),
    "num_updates": ("I32", ()),
    "n_averaged": ("I64", (1,)),
    "d2t": ("I64", (32000,)),
    "t2d": ("BOOL", (128256,)),
    "layers.0.ffn.gate.tid2eid": ("I64", (129280, 6)),
    "layers.1.ffn.gate.tid2eid": ("I32", (129280, 6)),
    "levels": ("I32", (5,)),
    "spiece_model": ("U8", (4548313,)),
    "text_encoders.umt5xxl.spiece_model": ("I8", (4548313,)),
    "text_encoders.0.tokenizer_json": ("U8", (1000,)),
    "attn.attention_bias_idxs": ("I64", (49, 49)),
    "rope.freqs_cis": ("C64", (128, 64)),
}


@pytest.mark.parametrize("name", BOOKKEEPING)
def test_bookkeeping_stays_accepted(name: str, tmp_path: Path) -> None:
    beside = {**bf16("layers.0.attn.qkv.weight", 64, 64), **bf16("layers.0.attn.relative_position_bias_table", 225, 12)}
    beside |= {**bf16("bn.weight", 64), **bf16("bn.running_mean", 64), **bf16("embeddings.class_embedding", 64), **bf16("logit_scale")}
    assert_accepted(judge(tmp_path, {**beside, name: BOOKKEEPING[name]}), "plain.bf16@1")
    assert_accepted(judge(tmp_path, {**beside, **unit("w", 256, 128), name: BOOKKEEPING[name]}, fp8_config()), BLOCKWISE)


def test_tables_that_outweigh_the_weights_are_no_bookkeeping(tmp_path: Path) -> None:
    """64-bit integers under a name that says nothing: by their share of the checkpoint."""
    small, large = {"a.codes": ("I64", (64, 64))}, {"a.codes": ("I64", (512, 512))}
    assert_accepted(judge(tmp_path, {**bf16("w.weight", 64, 64), **small}), "plain.bf16@1")
    assert_accepted(judge(tmp_path, {**bf16("w.weight", 8192, 8192), **large}), "plain.bf16@1")
    inspection = judge(tmp_path, {**bf16("w.weight", 64, 64), **large})
    assert inspection.codes == ("tensor-unexplained",), why(inspection)


@pytest.mark.parametrize(
    "entry",
    [
        ("U8", (16,)),  # one exponent for a tensor's row, and no row of the tensor's own
        ("U8", (256, 4)),
        ("U8", ()),
        ("I8", (1,)),
        ("I32", (256,)),
        ("I64", (2,)),
    ],
)
def test_integers_beside_a_quantized_weight_could_be_its_exponents(entry: tuple[str, tuple[int, ...]], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"w.weight": ("F8_E4M3", (256, 128)), "w.exps": entry})
    assert inspection.contract is None
    assert "w.exps" in {each.object for each in inspection.violations}, why(inspection)


BESIDE = {
    "a complex vector": (unit("x", 256, 128), "x.freqs", ("C64", (256,))),
    "a boolean for each row": (unit("x", 256, 128), "x.mask", ("BOOL", (256,))),
    "a boolean": (unit("x", 256, 128), "x.flag", ("BOOL", (1,))),
    "below the weight": (unit("x", 256, 128), "x.weight.zeros", ("I64", (256, 1))),
    "below the weight, an exponent": (unit("x", 256, 128), "x.weight.exponent", ("I32", (1,))),
    "beside a stack": (stacked_unit("experts.w1", 2, 256, 128), "experts.w1_zp", ("I32", (256,))),
    "beside a stack, an exponent": (stacked_unit("experts.w1", 2, 256, 128), "experts.w1_exponent", ("I8", (1,))),
    "scales of a stack": (stacked_unit("experts.w1", 2, 256, 128), "experts.scale", ("I32", (2,))),
}


@pytest.mark.parametrize(("tree", "name", "entry"), BESIDE.values(), ids=BESIDE)
def test_what_lies_beside_a_weight_is_no_bookkeeping(tree: Tree, name: str, entry: tuple[str, tuple[int, ...]], tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, tree, fp8_config()), BLOCKWISE)
    inspection = judge(tmp_path, {**tree, name: entry}, fp8_config())
    assert [(each.code, each.object) for each in inspection.violations] == [("tensor-unexplained", name)], why(inspection)
    elsewhere = judge(tmp_path, {**tree, "elsewhere.mask": entry}, fp8_config())
    assert elsewhere.contract == BLOCKWISE, why(elsewhere)


def test_a_counter_beside_a_weight_is_one(tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, {**unit("x", 256, 128), "x.steps": ("I64", ())}, fp8_config()), BLOCKWISE)


def test_what_is_refused_by_name_is_so_for_every_way_in(tmp_path: Path) -> None:
    from tensorhub_contracts import load

    for number, (tree, _, _) in enumerate(METHODS.values()):
        if sum(size for _, shape in tree.values() for size in shape[:1]) > 10_000:
            continue  # no need to load gigabytes
        folder = write_checkpoint(tmp_path / str(number), tree)
        with pytest.raises(Refusal) as caught:
            load(folder, dtype="BF16", resident=False)
        assert "tensor-unexplained" in caught.value.codes
        with pytest.raises(Refusal):
            record_artifact([inspect(folder)], installed_registry())

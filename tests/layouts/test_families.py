"""Every family of published layouts as a minimal tree: the right handle is recognized, and a neighbour that differs in one fact is not.

One row for each row of the table in `layouts.md`. A verdict here changes only with a new contract version or a line in the change log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts.registry.registry import load_registry
from tests.support.trees import (
    BLOCKWISE,
    ROWWISE,
    TREE,
    Fault,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    comfy_metadata,
    compressed_tensors_config,
    fp8_config,
    judge,
    noted,
    stacked_unit,
    unit,
    why,
)


@dataclass(frozen=True)
class Neighbour:
    """One fact of a family's tree changed: tensors replaced (None removes one), or keys of its declaration.

    The refusal must hold each of `faults`; it may hold more, because one changed fact can be wrong in two ways.
    """

    name: str
    faults: tuple[Fault, ...]
    tensors: dict[str, tuple[str, tuple[int, ...]] | None] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    files: dict[str, Any] | None = None


@dataclass(frozen=True)
class Family:
    """A published layout: its tensors, what declares it, the contract that it is in, and its neighbours."""

    name: str
    contract: str
    tensors: Tree
    neighbours: tuple[Neighbour, ...]
    config: dict[str, Any] | None = None
    files: dict[str, Any] = field(default_factory=dict)
    units: int = 1
    metadata: dict[str, str] = field(default_factory=dict)


def neighbour(
    name: str, *faults: Fault, config: dict[str, Any] | None = None, files: dict[str, Any] | None = None, **tensors: Any
) -> Neighbour:
    """`tensors` are leaves of the module `w`, with `__` for the dot: `w__weight_scale=("F32", (4,))`, or None to remove one."""
    return Neighbour(name, faults, {each.replace("__", "."): entry for each, entry in tensors.items()}, config, files)


def weight(*shape: int, dtype: str = "F8_E4M3") -> tuple[str, tuple[int, ...]]:
    return (dtype, shape)


def quantization(**keys: Any) -> dict[str, Any]:
    return {"quantization_config": keys}


def declared(
    key: str, code: str = "declaration-mismatch", expected: str = "", found: str = "", where: str = "quantization_config"
) -> Fault:
    return Fault(code, f"config.json: {where}: {key}", expected, found)


FP8 = fp8_config()
QWEN = fp8_config(modules_to_not_convert=["lm_head", "model.embed_tokens"])
LAYER = "model.language_model.layers.0"
STATIC = quantization(quant_method="fp8", activation_scheme="static", weight_block_size=None)
UE8M0 = fp8_config(scale_fmt="ue8m0")
MODELOPT = quantization(quant_method="modelopt", quant_algo="FP8")
BLOCK = compressed_tensors_config("block", block_structure=[128, 128])
NVFP4 = compressed_tensors_config("tensor_group", num_bits=4, group_size=16)
MXFP8 = compressed_tensors_config("group", group_size=32)

BLOCKWISE_NEIGHBOURS = (
    neighbour("scale-u8", Fault("scale-dtype", "w.weight_scale_inv", "F32 or BF16 or F16", "U8"), w__weight_scale_inv=("U8", (5, 3))),
    neighbour("scale-e8m0", Fault("scale-dtype", "w.weight_scale_inv", found="F8_E8M0"), w__weight_scale_inv=("F8_E8M0", (5, 3))),
    neighbour("scale-rank", Fault("scale-rank", "w.weight_scale_inv", "[5, 3]", "[15]"), w__weight_scale_inv=("F32", (15,))),
    neighbour("grid-by-one", Fault("scale-grid", "w.weight_scale_inv", "[5, 3]", "[5, 4]"), w__weight_scale_inv=("F32", (5, 4))),
    neighbour("e5m2", Fault("weight-dtype", "w.weight", "F8_E4M3", "F8_E5M2"), w__weight=weight(576, 384, dtype="F8_E5M2")),
    neighbour(
        "block-64", declared("weight_block_size", expected="[128, 128]", found="[64, 64]"), config=fp8_config(weight_block_size=[64, 64])
    ),
    neighbour("static", declared("activation_scheme", expected="dynamic", found="static"), config=fp8_config(activation_scheme="static")),
    neighbour("method", declared("quant_method", "declaration-unknown", found="fp9"), config=fp8_config(quant_method="fp9")),
    neighbour("other-method", Fault("layout-undeclared", TREE, resembles=BLOCKWISE), config=fp8_config(quant_method="fbgemm_fp8")),
)


def blockwise(name: str, tensors: Tree, config: dict[str, Any], units: int, *neighbours: Neighbour) -> Family:
    return Family(name, BLOCKWISE, tensors, neighbours, config, units=units)


PLAIN = (
    Family(
        "plain-bf16",
        "plain.bf16@1",
        bf16("w.weight", 576, 384),
        (
            neighbour("f64", Fault("unquantized-dtype", "w.weight", "BF16", "F64 [576, 384]"), w__weight=("F64", (576, 384))),
            neighbour("integers", Fault("layout-unknown", TREE), w__weight=("I64", (576, 384))),
            neighbour("declared", Fault("units-missing", TREE, BLOCKWISE), config=FP8),
        ),
        units=0,
    ),
    Family(
        "plain-f16",
        "plain.f16@1",
        {"w.weight": ("F16", (576, 384)), "norm.weight": ("F32", (8,))},
        (neighbour("vector-f64", Fault("unquantized-dtype", "norm.weight", "F32", "F64 [8]"), norm__weight=("F64", (8,))),),
        units=0,
    ),
    Family(
        "plain-f32",
        "plain.f32@1",
        {"w.weight": ("F32", (576, 384)), "norm.weight": ("BF16", (8,))},
        (neighbour("other-vector", Fault("unquantized-dtype", "norm.weight", found="F64 [8]"), norm__weight=("F64", (8,))),),
        units=0,
    ),
    Family(
        "plain-mixed",
        "plain.mixed@1",
        {"w.weight": ("BF16", (576, 384)), "router.weight": ("F32", (8, 384)), "norm.weight": ("F16", (8,))},
        (
            neighbour("f64", Fault("unquantized-dtype", "v.weight", "BF16 or F16 or F32", "F64 [8, 8]"), v__weight=("F64", (8, 8))),
            neighbour("declared", Fault("units-missing", TREE, BLOCKWISE), config=FP8),
        ),
        units=0,
    ),
)

BLOCK_FP8 = (
    blockwise(
        "qwen3.8-27b",
        {
            **unit(f"{LAYER}.linear_attn.in_proj_qkv", 10240, 5120, scale="BF16"),
            **unit(f"{LAYER}.self_attn.k_proj", 1024, 5120, scale="BF16"),
            **bf16(f"{LAYER}.linear_attn.conv1d.weight", 10240, 1, 4),
            **bf16(f"{LAYER}.linear_attn.A_log", 48),
            **bf16("mtp.fc.weight", 5120, 10240),
            **bf16("lm_head.weight", 248320, 5120),
        },
        QWEN,
        2,
    ),
    blockwise("qwen3-1.7b", unit("model.layers.0.mlp.down_proj", 2048, 6144, scale="BF16"), QWEN, 1),
    blockwise("qwen3-4b-instruct", {**unit("a", 576, 384, scale="F16"), **unit("b", 576, 384, scale="BF16")}, QWEN, 2),
    blockwise("qwen3-next", {**unit("linear_attn.in_proj_qkvz", 12288, 2048), **bf16("linear_attn.in_proj_ba.weight", 64, 2048)}, QWEN, 1),
    blockwise(
        "qwen3.6-35b-a3b", {**unit("mlp.experts.0.gate_proj", 512, 2048, scale="BF16"), **bf16("mlp.gate.weight", 256, 2048)}, QWEN, 1
    ),
    blockwise(
        "deepseek-v3",
        {
            **unit("kv_a_proj_with_mqa", 576, 7168),
            **unit("q_b_proj", 24576, 1536),
            **unit("kv_b_proj", 32768, 512),
            **bf16("mlp.gate.weight", 256, 7168),
            "mlp.gate.e_score_correction_bias": ("F32", (256,)),
        },
        FP8,
        3,
    ),
    blockwise("deepseek-v3.1", unit("w", 576, 384), UE8M0, 1, *BLOCKWISE_NEIGHBOURS[:4]),
    blockwise("kimi-k2", unit("w", 576, 384), FP8, 1, *BLOCKWISE_NEIGHBOURS),
    blockwise(
        "minimax-m2",
        {**unit("block_sparse_moe.experts.0.w1", 1536, 3072), **unit("self_attn.q_proj", 6144, 3072)},
        fp8_config(fmt="float8_e4m3fn", modules_to_not_convert=["gate", "e_score_correction_bias", "lm_head"]),
        2,
        neighbour("fmt", declared("fmt", expected="e4m3", found="float8_e5m2"), config=fp8_config(fmt="float8_e5m2")),
    ),
    blockwise("glm-5", {**unit("self_attn.indexer.wq_b", 4096, 2048), **bf16("self_attn.indexer.weights_proj.weight", 32, 6144)}, FP8, 1),
    blockwise(
        "step-3.7",
        {**stacked_unit("moe.gate_proj.weight", 4, 576, 384), **bf16("moe.gate.weight", 4, 384)},
        FP8,
        1,
        neighbour(
            "experts",
            Fault("scale-grid", "moe.gate_proj.weight_scale_inv", "[4, 5, 3]", ("[3, 5, 3]", "3 experts", "4")),
            moe__gate_proj__weight_scale_inv=("F32", (3, 5, 3)),
        ),
    ),
    blockwise(
        "hf-fused-experts",
        stacked_unit("experts.gate_up_proj", 4, 576, 384),
        FP8,
        1,
        neighbour(
            "plural-sidecar",
            Fault("scale-name-foreign", "experts.gate_up_proj_scales_inv", "_scale_inv"),
            experts__gate_up_proj_scale_inv=None,
            experts__gate_up_proj_scales_inv=("F32", (4, 5, 3)),
        ),
    ),
    Family(
        "compressed-tensors-block",
        "compressed-tensors.fp8-block@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("BF16", (5, 3))},
        (
            neighbour(
                "block",
                declared("config_groups.group_0.weights.block_structure", expected="[128, 128]", found="[64, 64]"),
                config=compressed_tensors_config("block", block_structure=[64, 64]),
            ),
            neighbour(
                "no-block",
                declared("config_groups.group_0.weights.block_structure", "declaration-incomplete", "[128, 128]"),
                config=compressed_tensors_config("block"),
            ),
            neighbour(
                "int8",
                declared("config_groups.group_0.weights.type", found="int"),
                config=compressed_tensors_config("block", block_structure=[128, 128], type="int"),
            ),
            neighbour("grid", Fault("scale-grid-transposed", "w.weight_scale", "[5, 3]", "[3, 5]"), w__weight_scale=("BF16", (3, 5))),
            neighbour("exponents", Fault("scale-dtype", "w.weight_scale", found="U8"), w__weight_scale=("U8", (5, 3))),
            neighbour("zero-point", Fault("sidecar-forbidden", "w.weight_zero_point"), w__weight_zero_point=("F8_E4M3", (5, 3))),
        ),
        BLOCK,
    ),
    Family(
        "deepseek-v4-flash-base",
        "deepseek.fp8-block@1",
        {"layers.0.ffn.w1.weight": weight(2048, 4096), "layers.0.ffn.w1.scale": ("F32", (16, 32)), "norm.scale": ("F32", (4096,))},
        (
            neighbour(
                "transposed",
                Fault("scale-grid-transposed", "layers.0.ffn.w1.scale", "[16, 32]", "[32, 16]"),
                layers__0__ffn__w1__scale=("F32", (32, 16)),
            ),
            neighbour(
                "block",
                declared("weight_block_size", expected="[128, 128]", found="[64, 64]"),
                config=fp8_config(weight_block_size=[64, 64]),
            ),
        ),
        {**FP8, "expert_dtype": "fp8"},
    ),
    Family(
        "deepseek-v4-flash",
        "deepseek.fp8-ue8m0@1",
        {
            "layers.0.attn.wo_a.weight": weight(8192, 4096),
            "layers.0.attn.wo_a.scale": ("F8_E8M0", (64, 32)),
            "layers.0.ffn.experts.0.w1.weight": weight(2048, 2048, dtype="I8"),
            "layers.0.ffn.experts.0.w1.scale": ("F8_E8M0", (2048, 128)),
        },
        (
            neighbour(
                "expert-groups",
                Fault("scale-grid", "layers.0.ffn.experts.0.w1.scale", "[2048, 128]", "[2048, 256]"),
                layers__0__ffn__experts__0__w1__scale=("F8_E8M0", (2048, 256)),
            ),
            neighbour(
                "grid",
                Fault("scale-grid-transposed", "layers.0.attn.wo_a.scale", "[64, 32]", "[32, 64]"),
                layers__0__attn__wo_a__scale=("F8_E8M0", (32, 64)),
            ),
            neighbour("no-scale-fmt", declared("scale_fmt", "declaration-incomplete", "ue8m0"), config=FP8),
        ),
        UE8M0,
        units=2,
    ),
)

SHARED_TABLE = (
    Family(
        "qwen3.8-flash-next",
        "qwen.fp8-blockwise-shared-table@1",
        {
            **unit("m.layers.0.up_proj", 576, 384, scale="BF16"),
            **{f"m.ngram.shard_{number}.weight": weight(100, 160) for number in range(3)},
            "m.ngram.weight_scale": ("BF16", ()),
        },
        (
            neighbour(
                "e5m2", Fault("weight-dtype", "m.ngram.shard_1.weight"), **{"m.ngram.shard_1.weight": weight(100, 160, dtype="F8_E5M2")}
            ),
            neighbour("gap", Fault("number-missing", "m.ngram.weight_scale", found="shard_1"), **{"m.ngram.shard_1.weight": None}),
            neighbour("rank", Fault("scale-rank", "m.ngram.weight_scale", "[]", "[3]"), **{"m.ngram.weight_scale": ("BF16", (3,))}),
            neighbour("static", declared("activation_scheme", expected="dynamic"), config=fp8_config(activation_scheme="static")),
        ),
        FP8,
        units=4,
    ),
)

BY_ROW = (
    Family(
        "cozy-rowwise",
        ROWWISE,
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", (576,)), **bf16("norm.weight", 8)},
        (
            neighbour("one-row", Fault("scale-grid-transposed", "w.weight_scale", "[576] or [576, 1]"), w__weight_scale=("F32", (1, 576))),
            neighbour("alignment", Fault("weight-alignment", "w.weight", "in a multiple of 16", "in = 383"), w__weight=weight(576, 383)),
            neighbour(
                "declared", Fault("layout-undeclared", TREE, resembles=ROWWISE), Fault("scale-name-foreign", "w.weight_scale"), config=FP8
            ),
            neighbour("input-scale", Fault("sidecar-forbidden", "w.input_scale", found="F32 []"), w__input_scale=("F32", ())),
        ),
    ),
    Family(
        "glm-4.5-channel",
        "compressed-tensors.fp8-channel@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("BF16", (576, 1))},
        (
            neighbour("rank-1", Fault("scale-rank", "w.weight_scale", "[576, 1]", "[576]"), w__weight_scale=("BF16", (576,))),
            neighbour(
                "columns",
                Fault("scale-grid", "w.weight_scale", "[576, 1]", "[384, 1]: as many as columns"),
                w__weight_scale=("BF16", (384, 1)),
            ),
            neighbour(
                "strategy", declared("config_groups.group_0.weights.strategy", found="token"), config=compressed_tensors_config("token")
            ),
            neighbour(
                "bits",
                declared("config_groups.group_0.weights.num_bits", expected="8", found="4"),
                config=compressed_tensors_config("channel", num_bits=4),
            ),
        ),
        compressed_tensors_config("channel"),
    ),
    Family(
        "fbgemm",
        "fbgemm.fp8-rowwise@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", (576, 1))},
        (
            neighbour("bf16-scale", Fault("scale-dtype", "w.weight_scale", "F32", "BF16"), w__weight_scale=("BF16", (576, 1))),
            neighbour("rank-1", Fault("scale-rank", "w.weight_scale", "[576, 1]", "[576]"), w__weight_scale=("F32", (576,))),
            neighbour(
                "method",
                declared("quant_method", "declaration-unknown", found="fbgemm_fp9"),
                config=quantization(quant_method="fbgemm_fp9"),
            ),
        ),
        quantization(quant_method="fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]),
    ),
    Family(
        "modelopt-channel",
        "modelopt.fp8-channel@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", (576,))},
        (
            neighbour("rank-2", Fault("scale-rank", "w.weight_scale", "[576]", "[576, 1]"), w__weight_scale=("F32", (576, 1))),
            neighbour("length", Fault("scale-grid", "w.weight_scale", "[576]", "575 scales for 576 rows"), w__weight_scale=("F32", (575,))),
        ),
        quantization(quant_method="modelopt", quant_algo="FP8_PER_CHANNEL_PER_TOKEN"),
    ),
    Family(
        "torchao",
        "torchao.fp8-rowwise@1",
        {"w._weight_qdata": weight(576, 384), "w._weight_scale": ("F32", (576, 1))},
        (
            neighbour("rank-1", Fault("scale-rank", "w._weight_scale", "[576, 1]", "[576]"), w___weight_scale=("F32", (576,))),
            neighbour("no-scale", Fault("scale-missing", "w._weight_qdata"), w___weight_scale=None),
        ),
        quantization(quant_method="torchao"),
    ),
)

BY_TENSOR = (
    Family(
        "ministral",
        "hf.fp8-tensor-static@1",
        {"w.weight": weight(576, 384), "w.weight_scale_inv": ("BF16", ()), "w.activation_scale": ("BF16", ())},
        (
            neighbour(
                "dynamic",
                declared("activation_scheme", found="dynamic"),
                config=quantization(quant_method="fp8", activation_scheme="dynamic"),
            ),
            neighbour("rank-1", Fault("scale-rank", "w.weight_scale_inv", "[] or [1]", "[576]"), w__weight_scale_inv=("BF16", (576,))),
            neighbour("input-scale", Fault("sidecar-forbidden", "w.input_scale"), w__input_scale=("F32", ())),
        ),
        STATIC,
    ),
    Family(
        "mistral-small-4",
        "hf.fp8-tensor-static@1",
        {
            "experts.gate_up_proj": weight(4, 576, 384),
            "experts.gate_up_proj_scale_inv": ("BF16", (4, 1, 1)),
            "w.weight": weight(576, 384),
            "w.weight_scale_inv": ("BF16", ()),
        },
        (
            neighbour(
                "experts",
                Fault("scale-grid", "experts.gate_up_proj_scale_inv", "[4, 1, 1]", "[3, 1, 1]"),
                experts__gate_up_proj_scale_inv=("BF16", (3, 1, 1)),
            ),
        ),
        STATIC,
        units=2,
    ),
    Family(
        "mistral-native",
        "mistral.fp8-tensor@1",
        {"w.weight": weight(576, 384), "w.qscale_weight": ("F32", ()), "w.qscale_act": ("F32", ())},
        (
            neighbour(
                "rank",
                Fault("scale-rank", "w.qscale_weight", "[] or [1]", "[5, 3]: the grid of 128 x 128"),
                w__qscale_weight=("F32", (5, 3)),
            ),
            neighbour(
                "format",
                Fault("declaration-mismatch", "params.json: quantization: qformat_weight", "fp8_e4m3", "fp8_e5m2"),
                files={"params.json": {"quantization": {"qformat_weight": "fp8_e5m2"}}},
            ),
        ),
        None,
        {"params.json": {"dim": 384, "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}},
    ),
    Family(
        "compressed-tensors-tensor",
        "compressed-tensors.fp8-tensor@1",
        {
            "w.weight": weight(576, 384),
            "w.weight_scale": ("BF16", (1,)),
            "w.input_scale": ("BF16", (1,)),
        },
        (
            neighbour("rank-2", Fault("scale-rank", "w.weight_scale", "[1] or []", "[1, 1]"), w__weight_scale=("BF16", (1, 1))),
            neighbour("two", Fault("scale-grid", "w.weight_scale", "[1] or []", "[2]"), w__weight_scale=("BF16", (2,))),
            neighbour("zero-point", Fault("sidecar-forbidden", "w.weight_zero_point"), w__weight_zero_point=("I8", (1,))),
        ),
        compressed_tensors_config("tensor"),
    ),
    Family(
        "modelopt-fp8",
        "modelopt.fp8-tensor@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", ()), "w.input_scale": ("F32", ())},
        (
            neighbour("no-input-scale", Fault("scale-missing", "w.weight", found="no such tensor"), w__input_scale=None),
            neighbour(
                "algorithm",
                declared("quant_algo", "declaration-unknown", found="FP9"),
                config=quantization(quant_method="modelopt", quant_algo="FP9"),
            ),
        ),
        MODELOPT,
    ),
    Family(
        "modelopt-fp8-own-file",
        "modelopt.fp8-tensor@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", ()), "w.input_scale": ("F32", ())},
        (
            neighbour(
                "algorithm",
                Fault("declaration-unknown", "hf_quant_config.json: quantization: quant_algo", "FP8", "FP9"),
                files={"hf_quant_config.json": {"quantization": {"quant_algo": "FP9"}}},
            ),
            neighbour("conflict", Fault("declaration-conflict", "quantization declaration"), config=FP8),
        ),
        None,
        {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}},
    ),
    Family(
        "comfyui-scaled",
        "comfy.fp8-scaled@1",
        {
            "w.weight": weight(576, 384),
            "w.scale_weight": ("F32", ()),
            "w.scale_input": ("F32", ()),
            "w.comfy_quant": ("U8", (57,)),
        },
        (
            neighbour("rank", Fault("scale-rank", "w.scale_weight", "[] or [1]", "[576, 1]"), w__scale_weight=("F32", (576, 1))),
            neighbour("two-leaves", Fault("scale-ambiguous", "w.weight_scale", "one scale, .scale_weight"), w__weight_scale=("F32", ())),
        ),
    ),
    Family(
        "comfyui-noted",
        "comfy.fp8-noted@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", ()), "w.comfy_quant": ("U8", (27,)), "w.input_scale": ("F32", ())},
        (
            neighbour("rank", Fault("scale-rank", "w.weight_scale", "[]", "[576, 1]"), w__weight_scale=("F32", (576, 1))),
            neighbour("bf16-scale", Fault("scale-dtype", "w.weight_scale", "F32", "BF16"), w__weight_scale=("BF16", ())),
            neighbour("int8", Fault("layout-undescribed", "w.weight", found="ComfyUI INT8"), w__weight=weight(576, 384, dtype="I8")),
        ),
    ),
    Family(
        "comfyui-declared",
        "comfy.fp8-declared@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("F32", ())},
        (neighbour("rank", Fault("scale-rank", "w.weight_scale", "[]", "[1]"), w__weight_scale=("F32", (1,))),),
        metadata=comfy_metadata("float8_e4m3fn", "w"),
    ),
    Family(
        "cozy-storage",
        "cozy.fp8-storage@1",
        {
            "w.weight": weight(576, 384),
            "conv.weight": weight(64, 32, 3, 3),
            "b": weight(8),
            "experts.w1": weight(4, 576, 384),
            **bf16("norm.weight", 8),
        },
        (
            neighbour("one-scale", Fault("scale-missing", "conv.weight"), w__weight_scale=("F32", (576,))),
            neighbour("e5m2", Fault("weight-dtype", "w.weight", "F8_E4M3", "F8_E5M2"), w__weight=weight(576, 384, dtype="F8_E5M2")),
            neighbour("declared", Fault("scale-missing", "w.weight"), config=FP8),
        ),
        units=4,
    ),
)

NARROWER = (
    Family(
        "minimax-m3-mxfp8",
        "minimax.mxfp8@1",
        {"w.weight": weight(576, 400), "w.weight_scale_inv": ("U8", (576, 13))},
        (
            neighbour("floor", Fault("scale-grid", "w.weight_scale_inv", "[576, 13]", "[576, 12]"), w__weight_scale_inv=("U8", (576, 12))),
            neighbour("numbers", Fault("scale-dtype", "w.weight_scale_inv", "U8", "F32"), w__weight_scale_inv=("F32", (576, 13))),
            neighbour(
                "group",
                declared("weight_block_size", expected="[1, 32]", found="[1, 16]"),
                config=quantization(quant_method="mxfp8", weight_block_size=[1, 16]),
            ),
        ),
        quantization(quant_method="mxfp8", weight_block_size=[1, 32]),
    ),
    Family(
        "compressed-tensors-mxfp8",
        "compressed-tensors.mxfp8@1",
        {"w.weight": weight(576, 384), "w.weight_scale": ("U8", (576, 12))},
        (
            neighbour(
                "group",
                declared("config_groups.group_0.weights.group_size", expected="32", found="16"),
                config=compressed_tensors_config("group", group_size=16),
            ),
            neighbour("numbers", Fault("scale-dtype", "w.weight_scale", "U8", "BF16"), w__weight_scale=("BF16", (576, 12))),
        ),
        MXFP8,
    ),
    Family(
        "gpt-oss-mxfp4",
        "openai.mxfp4@1",
        {
            "mlp.experts.gate_up_proj_blocks": ("U8", (32, 5760, 90, 16)),
            "mlp.experts.gate_up_proj_scales": ("U8", (32, 5760, 90)),
            **bf16("mlp.experts.gate_up_proj_bias", 32, 5760),
        },
        (
            neighbour(
                "groups",
                Fault("scale-grid", "mlp.experts.gate_up_proj_scales", "[32, 5760, 90]", "[32, 5760, 91]"),
                mlp__experts__gate_up_proj_scales=("U8", (32, 5760, 91)),
            ),
            neighbour(
                "8-bytes",
                Fault("weight-shape", "mlp.experts.gate_up_proj_blocks", "16", "[32, 5760, 90, 8]"),
                mlp__experts__gate_up_proj_blocks=("U8", (32, 5760, 90, 8)),
            ),
            neighbour("no-scales", Fault("scale-missing", "mlp.experts.gate_up_proj_blocks"), mlp__experts__gate_up_proj_scales=None),
        ),
        quantization(quant_method="mxfp4", modules_to_not_convert=["model.embed_tokens"]),
    ),
    Family(
        "compressed-tensors-nvfp4",
        "compressed-tensors.nvfp4-packed@1",
        {
            "w.weight_packed": ("U8", (576, 192)),
            "w.weight_scale": ("F8_E4M3", (576, 24)),
            "w.weight_global_scale": ("F32", (1,)),
            "w.input_global_scale": ("F32", (1,)),
        },
        (
            neighbour("no-global", Fault("scale-missing", "w.weight_packed", "F32"), w__weight_global_scale=None),
            neighbour(
                "groups",
                Fault("scale-grid", "w.weight_scale", "[576, 24]", "[576, 12]: the grid of 1 x 32 blocks"),
                w__weight_scale=("F8_E4M3", (576, 12)),
            ),
            neighbour(
                "integers",
                declared("config_groups.group_0.weights.type", found="int"),
                config=compressed_tensors_config("tensor_group", num_bits=4, group_size=16, type="int"),
            ),
        ),
        NVFP4,
    ),
    Family(
        "modelopt-nvfp4",
        "modelopt.nvfp4@1",
        {
            "w.weight": ("U8", (576, 192)),
            "w.weight_scale": ("F8_E4M3", (576, 24)),
            "w.weight_scale_2": ("F32", ()),
            "w.input_scale": ("F32", ()),
        },
        (
            neighbour("no-global", Fault("scale-missing", "w.weight"), w__weight_scale_2=None),
            neighbour("scale-dtype", Fault("scale-dtype", "w.weight_scale", "F8_E4M3", "U8"), w__weight_scale=("U8", (576, 24))),
        ),
        quantization(quant_method="modelopt", quant_algo="NVFP4"),
    ),
    Family(
        "cozy-nvfp4-flat",
        "cozy.nvfp4-flat@1",
        {
            "w.weight": ("U8", (576, 192)),
            "w.weight_scale": ("F8_E4M3", (576, 24)),
            "w.weight_scale_2": ("F32", (1, 1)),
            "w.input_scale": ("F32", (1, 1)),
            "w.pre_quant_scale": ("BF16", (384,)),
        },
        (
            neighbour("groups", Fault("scale-grid", "w.weight_scale", "[576, 24]", "[576, 23]"), w__weight_scale=("F8_E4M3", (576, 23))),
            neighbour("smoothing", Fault("scale-grid", "w.pre_quant_scale", "[384]", "[576]"), w__pre_quant_scale=("BF16", (576,))),
            neighbour("global-rank", Fault("scale-rank", "w.weight_scale_2", "[1, 1]", "[1]"), w__weight_scale_2=("F32", (1,))),
        ),
    ),
    Family(
        "comfyui-nvfp4",
        "comfy.nvfp4-swizzled@1",
        {"w.weight": weight(64, 128, dtype="U8"), "w.weight_scale": weight(128, 16), "w.weight_scale_2": ("F32", ())},
        (
            neighbour("transposed", Fault("scale-grid-transposed", "w.weight_scale", "[128, 16]"), w__weight_scale=weight(16, 128)),
            neighbour("global", Fault("scale-dtype", "w.weight_scale_2", "F32", "BF16"), w__weight_scale_2=("BF16", ())),
        ),
    ),
    Family(
        "comfyui-nvfp4-noted",
        "comfy.nvfp4-noted@1",
        {
            "w.weight": weight(64, 128, dtype="U8"),
            "w.weight_scale": weight(128, 16),
            "w.weight_scale_2": ("F32", ()),
            "w.comfy_quant": ("U8", (19,)),
        },
        (neighbour("unpadded", Fault("scale-grid", "w.weight_scale", "[128, 16]", "[64, 16]"), w__weight_scale=weight(64, 16)),),
    ),
    Family(
        "bfl-nvfp4",
        "bfl.nvfp4-preswizzled@1",
        {
            "w.weight": ("U8", (576, 192)),
            "w.weight_scale": ("F8_E4M3", (640 * 24,)),
            "w.weight_scale_2": ("F32", (1, 1)),
        },
        (
            neighbour("bf16", Fault("layout-undescribed", "w.weight", found=".weight_scale BF16"), w__weight_scale=("BF16", (640 * 24,))),
            neighbour("no-global", Fault("scale-missing", "w.weight"), w__weight_scale_2=None),
        ),
    ),
)

FAMILIES = (*SHARED_TABLE, *PLAIN, *BLOCK_FP8, *BY_ROW, *BY_TENSOR, *NARROWER)
SHIPPED = {handle for handle, contract in load_registry().contracts.items() if contract.decoder == "shipped"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_is_recognized(family: Family, tmp_path: Path) -> None:
    inspection = judge(tmp_path, family.tensors, family.config, files=family.files, metadata=family.metadata)
    if family.contract in SHIPPED:
        assert_accepted(inspection, family.contract, family.units)
    else:
        assert_named_without_decoder(inspection, family.contract)
        assert len(inspection.layouts) == family.units
    assert all(each.layout.contract == family.contract for each in inspection.units)
    assert family.contract in inspection.resembles or not family.units


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_that_is_asked_for_by_name_gets_the_same_verdict(family: Family, tmp_path: Path) -> None:
    asked = judge(tmp_path, family.tensors, family.config, files=family.files, contract=family.contract, metadata=family.metadata)
    found = judge(tmp_path, family.tensors, family.config, files=family.files, metadata=family.metadata)
    assert (asked.contract, asked.codes) == (found.contract, found.codes), why(asked)


@pytest.mark.parametrize("family", [each for each in FAMILIES if len(each.tensors) > 1], ids=lambda family: family.name)
def test_a_family_with_every_tensor_in_a_shard_of_its_own_gets_the_same_verdict(family: Family, tmp_path: Path) -> None:
    """A sidecar may lie before its weight or after it, in any shard; what it belongs to is decided by names alone."""
    whole = judge(tmp_path, family.tensors, family.config, files=family.files, metadata=family.metadata)
    for order in (1, -1):
        tensors = dict(list(family.tensors.items())[::order])
        split = judge(tmp_path, tensors, family.config, files=family.files, shards=len(tensors), metadata=family.metadata)
        assert (split.contract, split.codes, split.nearest, split.resembles) == (
            whole.contract,
            whole.codes,
            whole.nearest,
            whole.resembles,
        )
        assert {each.name: each.layout for each in split.units} == {each.name: each.layout for each in whole.units}


@pytest.mark.parametrize(
    ("family", "case"), [pytest.param(family, case, id=f"{family.name}-{case.name}") for family in FAMILIES for case in family.neighbours]
)
def test_a_neighbour_is_refused_and_what_changed_is_named(family: Family, case: Neighbour, tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in (family.tensors | case.tensors).items() if entry is not None}
    config = family.config if case.config is None else case.config
    inspection = judge(tmp_path, tensors, config, files=family.files if case.files is None else case.files, metadata=family.metadata)
    assert inspection.contract is None, f"accepted as {inspection.contract}"
    violations = {(each.code, TREE if each.object == inspection.path else each.object): each for each in inspection.violations}
    for fault in case.faults:
        assert (fault.code, fault.object) in violations, why(inspection)
    # The named faults, checked in full; the rest of the list may say more about the same change.
    for fault in case.faults:
        violation = violations[fault.code, fault.object]
        for text in (fault.expected,) if isinstance(fault.expected, str) else fault.expected:
            assert text in violation.expected, str(violation)
        for text in (fault.found,) if isinstance(fault.found, str) else fault.found:
            assert text in violation.found, str(violation)
        assert fault.resembles in (None, violation.resembles), str(violation)


def test_every_contract_of_the_registry_has_a_family_here() -> None:
    assert {family.contract for family in FAMILIES} == set(load_registry().contracts)


def test_every_family_outside_the_blockwise_ones_has_a_neighbour() -> None:
    """Of the blockwise families some stand for names and shapes alone; their neighbours are those of `kimi-k2`."""
    assert not [family.name for family in FAMILIES if not family.neighbours and family.contract != BLOCKWISE]


# What has no contract, or none of its own.


def test_modelopt_blocks_of_rank_4_are_refused_with_the_shape_named(tmp_path: Path) -> None:
    tensors: Tree = {"w.weight": weight(512, 384), "w.weight_scale": ("F32", (4, 1, 3, 1))}
    inspection = judge(tmp_path, tensors, quantization(quant_method="modelopt", quant_algo="FP8_PB_WO"))
    assert inspection.contract is None
    (unknown,) = inspection.violations
    assert unknown.code == "declaration-unknown"
    assert "FP8_PB_WO" in unknown.found
    assert "[4, 1, 3, 1]" in unknown.found


def test_ngram_shards_that_share_one_scalar_make_a_blockwise_tree_mixed(tmp_path: Path) -> None:
    """Qwen3.8-Flash-Next-FP8: no shard has a scale of its own, and the scalar has no weight of its own."""
    shards: Tree = {f"ngram_embedding.shards.{number}.weight": weight(1000, 384) for number in range(128)}
    tensors = {**unit("layers.0.mlp.experts.0.up_proj", 576, 384, scale="BF16"), **shards, "ngram_embedding.weight_scale": ("BF16", ())}
    inspection = judge(tmp_path, tensors, FP8)
    assert_refused(
        inspection,
        Fault(
            "layout-mixed",
            TREE,
            BLOCKWISE,
            ("ngram_embedding.shards: 128 x F8_E4M3 rank 2 with no scale", f"({BLOCKWISE})", ".weight_scale"),
        ),
        *(Fault("scale-missing", name) for name in shards),
        Fault("scale-orphan", "ngram_embedding.weight_scale", found="BF16 []"),
    )


def test_a_member_fused_over_a_border_inside_a_block_hides_behind_the_same_grid(tmp_path: Path) -> None:
    """2112 = 1536 + 576: the grid has 17 rows of blocks either way, so headers cannot show it, and the report says so."""
    inspection = judge(tmp_path, unit("fused_qkv_a_proj_with_mqa", 2112, 7168), FP8)
    assert_accepted(inspection, BLOCKWISE, {"fused_qkv_a_proj_with_mqa.weight": (17, 56)})
    assert any("members begin inside a fused weight" in what for what, _ in inspection.not_provable)


# Several files and several groups that declare.


@pytest.mark.parametrize(
    ("name", "config", "files", "contract"),
    [
        ("modelopt-fp8", MODELOPT, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}, "modelopt.fp8-tensor@1"),
        ("ministral", STATIC, {"params.json": {"quantization": {"qformat_weight": "fp8_e4m3"}}}, "hf.fp8-tensor-static@1"),
        ("ministral", STATIC, {"params.json": {"dim": 384}}, "hf.fp8-tensor-static@1"),
    ],
)
def test_declarations_in_two_files_that_agree(
    name: str, config: dict[str, Any], files: dict[str, Any], contract: str, tmp_path: Path
) -> None:
    (family,) = (each for each in FAMILIES if each.name == name)
    assert_named_without_decoder(judge(tmp_path, family.tensors, config, files=files), contract)


def test_two_declarations_may_differ_in_the_modules_that_they_list(tmp_path: Path) -> None:
    inner = fp8_config(modules_to_not_convert=["lm_head"])
    assert_accepted(judge(tmp_path, unit("w", 576, 384), {**FP8, "text_config": inner}), BLOCKWISE, 1)


def test_every_group_of_a_declaration_counts(tmp_path: Path) -> None:
    (family,) = (each for each in FAMILIES if each.name == "compressed-tensors-block")
    groups = BLOCK["quantization_config"]["config_groups"]
    both = quantization(quant_method="compressed-tensors", config_groups={**groups, "experts": groups["group_0"]})
    assert_named_without_decoder(judge(tmp_path, family.tensors, both), family.contract)
    int4 = {"weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}
    inspection = judge(tmp_path, family.tensors, quantization(quant_method="compressed-tensors", config_groups={**groups, "experts": int4}))
    where = "config.json: quantization_config: config_groups.experts.weights"
    assert {f"{where}.{key}" for key in ("strategy", "type", "num_bits", "block_structure")} <= {
        each.object for each in inspection.violations
    }


# Mixed trees, and the table by prefix.

PIECES: dict[str, Tree] = {
    BLOCKWISE: unit("body.0.w", 576, 384),
    ROWWISE: {"body.0.w.weight": weight(576, 384), "body.0.w.weight_scale": ("F32", (576,))},
    "compressed-tensors.fp8-channel@1": {"body.0.w.weight": weight(576, 384), "body.0.w.weight_scale": ("F16", (576, 1))},
    "compressed-tensors.fp8-block@1": {"body.0.w.weight": weight(576, 384), "body.0.w.weight_scale": ("F32", (5, 3))},
    "hf.fp8-tensor-static@1": {"body.0.w.weight": weight(576, 384), "body.0.w.weight_scale_inv": ("F32", ())},
    "minimax.mxfp8@1": {"body.0.w.weight": weight(576, 384), "body.0.w.weight_scale_inv": ("U8", (576, 12))},
    "comfy.fp8-scaled@1": {"body.0.w.weight": weight(576, 384), "body.0.w.scale_weight": ("F32", ())},
    "compressed-tensors.nvfp4-packed@1": {
        "body.0.w.weight_packed": ("U8", (576, 192)),
        "body.0.w.weight_scale": ("F8_E4M3", (576, 24)),
        "body.0.w.weight_global_scale": ("F32", (1,)),
    },
}
PAIRS = [(first, second) for first in PIECES for second in PIECES if first != second]


@pytest.mark.parametrize("config", [None, FP8], ids=["undeclared", "declared-blockwise"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_layouts_in_one_tree_are_mixed_with_a_table_by_prefix(
    first: str, second: str, config: dict[str, Any] | None, tmp_path: Path
) -> None:
    tensors = {
        **{f"{part}.{name}": entry for part in ("a", "b") for name, entry in PIECES[first].items()},
        **{f"c.{name}": entry for name, entry in PIECES[second].items()},
    }
    inspection = judge(tmp_path, tensors, config)
    assert inspection.contract is None
    (mixed,) = (each for each in inspection.violations if each.code == "layout-mixed")
    assert mixed.object == inspection.path
    rows = dict(row.split(": ", 1) for row in mixed.found.split("; "))
    assert {prefix: row.rpartition("(")[2].rstrip(")") for prefix, row in rows.items()} == {
        "a.body": first,
        "b.body": first,
        "c.body": second,
    }
    assert all(row.startswith("1 x ") for row in rows.values())
    assert {first, second} <= set(inspection.resembles)


def test_a_tree_of_one_layout_under_many_prefixes_is_not_mixed(tmp_path: Path) -> None:
    tensors = {**unit("a.0.w", 576, 384), **unit("b.0.w", 256, 384, scale="BF16"), **stacked_unit("c.0.w", 4, 576, 384), **unit("d", 1, 1)}
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE, 4)


# Multi-token prediction: always validated, whether or not anyone will use it.

LAYERS = {"num_hidden_layers": 2}
MTP_UNITS = [
    ("mtp.layers.0.mlp.up_proj", {}),
    ("model.mtp.layers.0.mlp.up_proj", {}),
    ("model.layers.2.mlp.up_proj", LAYERS),
    ("model.layers.61.mlp.up_proj", {"text_config": LAYERS}),
    ("model.language_model.layers.2.mlp.up_proj", LAYERS),
]


@pytest.mark.parametrize(("module", "config"), MTP_UNITS)
def test_a_bad_grid_in_an_mtp_layer_is_refused(module: str, config: dict[str, Any], tmp_path: Path) -> None:
    tensors = {**unit("model.layers.0.mlp.up_proj", 576, 384), **unit("model.layers.1.mlp.up_proj", 576, 384), **unit(module, 576, 384)}
    assert_accepted(judge(tmp_path, tensors, {**FP8, **config}), BLOCKWISE, 3)
    bad = {**tensors, f"{module}.weight_scale_inv": ("F32", (3, 5))}
    assert_refused(
        judge(tmp_path, bad, {**FP8, **config}), Fault("scale-grid-transposed", f"{module}.weight_scale_inv", "[5, 3]", "[3, 5]")
    )
    missing = {name: entry for name, entry in tensors.items() if name != f"{module}.weight_scale_inv"}
    assert_refused(judge(tmp_path, missing, {**FP8, **config}), Fault("scale-missing", f"{module}.weight"))


@pytest.mark.parametrize("entries", [["mtp"], ["model.layers.2"], ["re:.*mtp.*"], ["mtp.layers.0.mlp.up_proj"]])
def test_an_exclusion_of_the_mtp_layer_exempts_it_from_nothing(entries: list[str], tmp_path: Path) -> None:
    tensors = {
        **unit("model.layers.0.mlp.up_proj", 576, 384),
        **unit("mtp.layers.0.mlp.up_proj", 576, 384),
        **unit("model.layers.2.w", 576, 384),
    }
    bad: Tree = {"mtp.layers.0.mlp.up_proj.weight_scale_inv": ("F32", (3, 5)), "model.layers.2.w.weight_scale_inv": ("F32", (5, 4))}
    inspection = judge(tmp_path, tensors | bad, fp8_config(modules_to_not_convert=entries) | LAYERS)
    assert_refused(
        inspection,
        Fault("scale-grid-transposed", "mtp.layers.0.mlp.up_proj.weight_scale_inv"),
        Fault("scale-grid", "model.layers.2.w.weight_scale_inv"),
    )
    assert noted(inspection, "contradicted by the bytes")

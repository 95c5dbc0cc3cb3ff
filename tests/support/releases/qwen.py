"""Qwen3.8-Flash-Next-FP8: block FP8 experts, and one table of n-grams in 128 shards of FP8 that share one scale.

Every shape is published: two readers of all 131 headers listed them, and their sums agree with the index. Attention, shared experts and
hyper-connections are BF16; a report that counted 75,567 units had derived them as FP8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.releases.facts import Account, Damage, Release, numbered
from tests.support.releases.sparse_shards import Tensor

_TEXT = "model.language_model"
_TABLE = f"{_TEXT}.layers.1.ple.ple_embedding"


def _bf16(name: str, *shape: int) -> Tensor:
    return name, "BF16", shape


def _tensors() -> Iterator[Tensor]:
    yield _bf16(f"{_TEXT}.embed_tokens.weight", 248320, 2560)
    for layer in range(48):
        prefix = f"{_TEXT}.layers.{layer}"
        if layer % 4 == 3:
            yield from _sparse_attention(f"{prefix}.self_attn")
        else:
            yield from _linear_attention(f"{prefix}.linear_attn")
        if layer == 1:
            yield from _ngrams(prefix)
        yield from _experts_and_connections(prefix)
    yield from _mixer(f"{_TEXT}.hyper_connection_mixer")
    yield _bf16("lm_head.weight", 248320, 2560)
    yield from _multi_token_prediction()
    yield from _visual()


def _linear_attention(prefix: str) -> Iterator[Tensor]:
    yield _bf16(f"{prefix}.in_proj_qkv.weight", 10240, 2560)
    yield _bf16(f"{prefix}.in_proj_z.weight", 6144, 2560)
    yield _bf16(f"{prefix}.out_proj.weight", 2560, 6144)
    yield _bf16(f"{prefix}.in_proj_a.weight", 48, 2560)
    yield _bf16(f"{prefix}.in_proj_b.weight", 48, 2560)
    yield _bf16(f"{prefix}.conv1d.weight", 10240, 1, 4)
    yield _bf16(f"{prefix}.norm.weight", 128)
    yield _bf16(f"{prefix}.A_log", 48)
    yield _bf16(f"{prefix}.dt_bias", 48)


def _sparse_attention(prefix: str) -> Iterator[Tensor]:
    yield _bf16(f"{prefix}.q_proj.weight", 12288, 2560)
    yield _bf16(f"{prefix}.k_proj.weight", 512, 2560)
    yield _bf16(f"{prefix}.v_proj.weight", 512, 2560)
    yield _bf16(f"{prefix}.o_proj.weight", 2560, 6144)
    yield _bf16(f"{prefix}.q_norm.weight", 256)
    yield _bf16(f"{prefix}.k_norm.weight", 256)
    yield _bf16(f"{prefix}.indexer.index_qk_proj.weight", 640, 2560)
    yield _bf16(f"{prefix}.indexer.q_layernorm.weight", 128)
    yield _bf16(f"{prefix}.indexer.k_layernorm.weight", 128)


def _ngrams(prefix: str) -> Iterator[Tensor]:
    for shard in range(128):
        yield f"{_TABLE}.ngram_embedding.shard_{shard}.weight", "F8_E4M3", (2500012, 160)
    yield _bf16(f"{_TABLE}.ngram_embedding.weight_scale", 1)
    yield f"{_TABLE}.ngram_heads_offsets", "I64", (16,)
    yield f"{_TABLE}.ngram_heads_vocab_sizes", "I64", (16,)
    yield f"{_TABLE}.layer_multipliers", "I64", (3,)
    yield _bf16(f"{prefix}.ple.key_proj.weight", 10240, 2560)
    yield _bf16(f"{prefix}.ple.value_proj.weight", 2560, 2560)
    yield _bf16(f"{prefix}.ple.conv1d.weight", 10240, 1, 4)
    for norm in ("norm_conv", "norm_key", "norm_query"):
        yield _bf16(f"{prefix}.ple.{norm}.weight", 10240)


def _experts_and_connections(prefix: str) -> Iterator[Tensor]:
    for expert in range(512):
        for name, rows, columns in (("gate_proj", 640, 2560), ("up_proj", 640, 2560), ("down_proj", 2560, 640)):
            yield f"{prefix}.mlp.experts.{expert}.{name}.weight", "F8_E4M3", (rows, columns)
            yield _bf16(f"{prefix}.mlp.experts.{expert}.{name}.weight_scale_inv", rows // 128, columns // 128)
    yield _bf16(f"{prefix}.mlp.shared_expert.gate_proj.weight", 640, 2560)
    yield _bf16(f"{prefix}.mlp.shared_expert.up_proj.weight", 640, 2560)
    yield _bf16(f"{prefix}.mlp.shared_expert.down_proj.weight", 2560, 640)
    yield _bf16(f"{prefix}.mlp.shared_expert_gate.weight", 1, 2560)
    yield _bf16(f"{prefix}.mlp.gate.weight", 512, 2560)
    for part in ("attn_hyper_connection", "mlp_hyper_connection"):
        yield from _mixer(f"{prefix}.{part}")
        yield _bf16(f"{prefix}.{part}.block_inject_weight.weight", 4, 10240)


def _mixer(prefix: str) -> Iterator[Tensor]:
    yield _bf16(f"{prefix}.input_mix_weight_down.weight", 320, 10240)
    yield _bf16(f"{prefix}.input_mix_weight_up.weight", 10240, 320)
    yield _bf16(f"{prefix}.hc_norm.weight", 10240)


def _multi_token_prediction() -> Iterator[Tensor]:
    yield _bf16("mtp.fc_embedding.weight", 2560, 2560)
    yield _bf16("mtp.fc_hidden.weight", 2560, 2560)
    yield _bf16("mtp.pre_fc_norm_embedding.weight", 2560)
    yield _bf16("mtp.pre_fc_norm_hidden.weight", 10240)
    yield from _sparse_attention("mtp.layers.0.self_attn")
    yield from _experts_and_connections("mtp.layers.0")
    yield from _mixer("mtp.hyper_connection_mixer")


def _visual() -> Iterator[Tensor]:
    prefix = "model.visual"
    yield from _with_bias(f"{prefix}.patch_embed.proj", 1152, 3, 2, 16, 16)
    yield _bf16(f"{prefix}.pos_embed.weight", 2304, 1152)
    for block in range(27):
        for norm in ("norm1", "norm2"):
            yield from _with_bias(f"{prefix}.blocks.{block}.{norm}", 1152)
        yield from _with_bias(f"{prefix}.blocks.{block}.attn.qkv", 3456, 1152)
        yield from _with_bias(f"{prefix}.blocks.{block}.attn.proj", 1152, 1152)
        yield from _with_bias(f"{prefix}.blocks.{block}.mlp.linear_fc1", 4304, 1152)
        yield from _with_bias(f"{prefix}.blocks.{block}.mlp.linear_fc2", 1152, 4304)
    yield from _with_bias(f"{prefix}.merger.norm", 1152)
    yield from _with_bias(f"{prefix}.merger.linear_fc1", 4608, 4608)
    yield from _with_bias(f"{prefix}.merger.linear_fc2", 2560, 4608)


def _with_bias(module: str, *shape: int) -> Iterator[Tensor]:
    yield _bf16(f"{module}.weight", *shape)
    yield _bf16(f"{module}.bias", *shape[:1])


def _config() -> dict[str, Any]:
    """Return the configuration; the published list names modules without scales, and which they are is inferred: all of them."""
    modules = [name.removesuffix(".weight") for name, dtype, _ in _tensors() if dtype == "BF16" and name.endswith(".weight")]
    declaration = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": modules,
    }
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "quantization_config": {**declaration, "modules_to_not_convert": modules},
        "text_config": {"hidden_size": 2560, "num_hidden_layers": 48, "num_experts": 512, "ple_layer_ids": [2], "split_ngram_parts": 128},
        "tie_word_embeddings": False,
    }


QWEN38_FLASH_NEXT_FP8 = Release(
    name="qwen3.8-flash-next-fp8",
    title="Qwen3.8-Flash-Next-FP8",
    tensors=_tensors,
    shards=numbered(131),
    files={"config.json": _config},
    contract="qwen.fp8-blockwise-shared-table@1",
    # 49 layers of 512 experts of three matrices, each with its grid; 128 parts of one table, which share one scale.
    account=Account(weights=75_264 + 128, sidecars=75_264 + 1, unquantized=1_429, bookkeeping=3),
    payload_bytes=185_502_232_570,
    published="All names, dtypes and shapes, 152,089 tensors in 131 shards, the index's sum of 185,502,232,570 bytes; the configuration.",
    derived="The order of the tensors, how they are cut into shards, and the entries of the exclusion list.",
    notes=("no decoder installed here reads qwen.fp8-blockwise-shared-table@1",),
    damage=Damage(f"{_TABLE}.ngram_embedding.shard_77.weight", None, "number-missing", f"{_TABLE}.ngram_embedding.weight_scale"),
)

"""Language models whose release is one checkpoint of numbered shards: DeepSeek-V3.2, MiniMax-M2, GLM-4.5-Air-FP8 and gpt-oss-20b."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.geometries import deepseek_v3_tensors
from tests.support.releases.facts import Account, Damage, Release, numbered
from tests.support.releases.sparse_shards import Tensor

_BLOCK = 128
_BLOCK_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [_BLOCK, _BLOCK]}


def _block(module: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield f"{module}.weight", "F8_E4M3", (rows, columns)
    yield f"{module}.weight_scale_inv", "F32", (-(-rows // _BLOCK), -(-columns // _BLOCK))


def _channel(module: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield f"{module}.weight", "F8_E4M3", (rows, columns)
    yield f"{module}.weight_scale", "F32", (rows, 1)


def _bf16(name: str, *shape: int) -> Tensor:
    return name, "BF16", shape


# DeepSeek-V3.2: DeepSeek-V3 with an indexer of seven tensors in each of the 62 layers.


def _deepseek_v32() -> Iterator[Tensor]:
    for tensor in deepseek_v3_tensors():
        yield tensor
        if tensor[0].endswith(".self_attn.o_proj.weight_scale_inv"):
            indexer = tensor[0].removesuffix("o_proj.weight_scale_inv") + "indexer"
            yield from _block(f"{indexer}.wq_b", 8192, 1536)  # 64 heads of 128
            yield from _block(f"{indexer}.wk", 128, 7168)
            yield f"{indexer}.k_norm.weight", "F32", (128,)
            yield f"{indexer}.k_norm.bias", "F32", (128,)
            yield _bf16(f"{indexer}.weights_proj.weight", 64, 7168)


DEEPSEEK_V32 = Release(
    name="deepseek-v3.2",
    title="DeepSeek-V3.2",
    tensors=_deepseek_v32,
    shards=numbered(163, digits=6),
    files={
        "config.json": {
            "architectures": ["DeepseekV32ForCausalLM"],
            "model_type": "deepseek_v32",
            "hidden_size": 7168,
            "index_head_dim": 128,
            "index_n_heads": 64,
            "num_hidden_layers": 61,
            "num_nextn_predict_layers": 1,
            "n_routed_experts": 256,
            "quantization_config": {**_BLOCK_FP8, "scale_fmt": "ue8m0"},
        }
    },
    contract="hf.fp8-blockwise@1",
    # 45,808 units of DeepSeek-V3 and two in each of 62 indexers; 375 unquantized tensors, and three in each indexer.
    account=Account(weights=45_932, sidecars=45_932, unquantized=561),
    payload_bytes=689_469_018_240,
    published="92,425 tensors in 163 shards, 45,932 units, wk [128, 7168] with the grid [1, 56]; the configuration.",
    derived="The other shapes, from the configuration. The dtypes of the indexer's norm (F32) and projection (BF16) are inferred.",
    notes=("scale_fmt ue8m0 is declared",),
    damage=Damage("model.layers.61.self_attn.indexer.wk.weight_scale_inv", ("F32", (56, 1)), "scale-grid-transposed"),
)


# MiniMax-M2: 62 layers of 256 experts.


def _minimax_m2() -> Iterator[Tensor]:
    yield _bf16("model.embed_tokens.weight", 200064, 3072)
    for layer in range(62):
        prefix = f"model.layers.{layer}"
        yield from _block(f"{prefix}.self_attn.q_proj", 6144, 3072)
        yield from _block(f"{prefix}.self_attn.k_proj", 1024, 3072)
        yield from _block(f"{prefix}.self_attn.v_proj", 1024, 3072)
        yield from _block(f"{prefix}.self_attn.o_proj", 3072, 6144)
        yield _bf16(f"{prefix}.self_attn.q_norm.weight", 6144)
        yield _bf16(f"{prefix}.self_attn.k_norm.weight", 1024)
        yield f"{prefix}.block_sparse_moe.gate.weight", "F32", (256, 3072)
        yield f"{prefix}.block_sparse_moe.e_score_correction_bias", "F32", (256,)
        for expert in range(256):
            yield from _block(f"{prefix}.block_sparse_moe.experts.{expert}.w1", 1536, 3072)
            yield from _block(f"{prefix}.block_sparse_moe.experts.{expert}.w2", 3072, 1536)
            yield from _block(f"{prefix}.block_sparse_moe.experts.{expert}.w3", 1536, 3072)
        yield _bf16(f"{prefix}.input_layernorm.weight", 3072)
        yield _bf16(f"{prefix}.post_attention_layernorm.weight", 3072)
    yield _bf16("model.norm.weight", 3072)
    yield _bf16("lm_head.weight", 200064, 3072)


MINIMAX_M2 = Release(
    name="minimax-m2",
    title="MiniMax-M2",
    tensors=_minimax_m2,
    shards=numbered(125),
    files={
        "config.json": {
            "architectures": ["MiniMaxM2ForCausalLM"],
            "model_type": "minimax_m2",
            "hidden_size": 3072,
            "num_hidden_layers": 62,
            "num_local_experts": 256,
            "quantization_config": {
                **_BLOCK_FP8,
                "fmt": "float8_e4m3fn",
                "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
            },
        }
    },
    contract="hf.fp8-blockwise@1",
    account=Account(weights=47_864, sidecars=47_864, unquantized=375),
    payload_bytes=230_121_630_720,
    # MiniMax-M2.7, which has the same configuration, is listed whole: 96,103 tensors of 228,703,644,928 elements. Its 125 shards are
    # numbered 0 to 124 of 130, and its index names no other; here they are 1 to 125 of 125.
    published="47,864 units, F32 routers, the configuration; all names, dtypes and shapes of MiniMax-M2.7, configured alike.",
    derived="That MiniMax-M2 has the tensors of MiniMax-M2.7; the numbers of its 125 shards.",
    damage=Damage(
        "model.layers.40.block_sparse_moe.experts.255.w2.weight_scale_inv",
        None,
        "scale-missing",
        "model.layers.40.block_sparse_moe.experts.255.w2.weight",
    ),
)


# GLM-4.5-Air-FP8: 46 layers, the first without experts, and layer 46 for multi-token prediction.


def _glm_45_air() -> Iterator[Tensor]:
    yield _bf16("model.embed_tokens.weight", 151552, 4096)
    for layer in range(47):
        prefix = f"model.layers.{layer}"
        if layer == 46:
            yield _bf16(f"{prefix}.embed_tokens.weight", 151552, 4096)
            yield _bf16(f"{prefix}.enorm.weight", 4096)
            yield _bf16(f"{prefix}.hnorm.weight", 4096)
            yield from _channel(f"{prefix}.eh_proj", 4096, 8192)
        for name, rows in (("q", 12288), ("k", 1024), ("v", 1024)):
            yield from _channel(f"{prefix}.self_attn.{name}_proj", rows, 4096)
            yield _bf16(f"{prefix}.self_attn.{name}_proj.bias", rows)
        yield from _channel(f"{prefix}.self_attn.o_proj", 4096, 12288)
        if layer == 0:
            yield from _glm_feed_forward(f"{prefix}.mlp", 10944)
        else:
            yield _bf16(f"{prefix}.mlp.gate.weight", 128, 4096)
            yield f"{prefix}.mlp.gate.e_score_correction_bias", "F32", (128,)
            for expert in range(128):
                yield from _glm_feed_forward(f"{prefix}.mlp.experts.{expert}", 1408)
            yield from _glm_feed_forward(f"{prefix}.mlp.shared_experts", 1408)
        yield _bf16(f"{prefix}.input_layernorm.weight", 4096)
        yield _bf16(f"{prefix}.post_attention_layernorm.weight", 4096)
        if layer == 46:
            yield _bf16(f"{prefix}.shared_head.norm.weight", 4096)
            yield _bf16(f"{prefix}.shared_head.head.weight", 151552, 4096)
    yield _bf16("model.norm.weight", 4096)
    yield _bf16("lm_head.weight", 151552, 4096)


def _glm_feed_forward(prefix: str, intermediate: int) -> Iterator[Tensor]:
    yield from _channel(f"{prefix}.gate_proj", intermediate, 4096)
    yield from _channel(f"{prefix}.up_proj", intermediate, 4096)
    yield from _channel(f"{prefix}.down_proj", 4096, intermediate)


_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
_TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}

GLM_45_AIR_FP8 = Release(
    name="glm-4.5-air-fp8",
    title="GLM-4.5-Air-FP8",
    tensors=_glm_45_air,
    shards=numbered(47),
    files={
        "config.json": {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "hidden_size": 4096,
            "num_hidden_layers": 46,
            "num_nextn_predict_layers": 1,
            "n_routed_experts": 128,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": _CHANNEL, "input_activations": _TOKEN}},
                "ignore": ["lm_head", "model.layers.46.shared_head.head", *(f"model.layers.{layer}.mlp.gate" for layer in range(1, 47))],
            },
        }
    },
    contract="compressed-tensors.fp8-channel@1",
    # Biases and norms of 47 layers, routers of 46, the embedding, norm and head, and five tensors for multi-token prediction.
    account=Account(weights=17_994, sidecars=17_994, unquantized=47 * 5 + 46 * 2 + 3 + 5),
    payload_bytes=113_144_711_680,
    published="17,994 units, the layer for multi-token prediction among them; one F32 scale for each row; the configuration.",
    derived="All shapes, from the configuration. How it is cut into shards, and which modules the exclusion list names, are inferred.",
    notes=("no decoder installed here reads compressed-tensors.fp8-channel@1",),
    damage=Damage("model.layers.46.eh_proj.weight_scale", ("F32", (4096,)), "scale-rank"),
)


# gpt-oss-20b: 24 layers of 32 stacked experts in MXFP4.


def _gpt_oss_20b() -> Iterator[Tensor]:
    yield _bf16("model.embed_tokens.weight", 201088, 2880)
    for layer in range(24):
        prefix = f"model.layers.{layer}"
        for name, rows, columns in (("q", 4096, 2880), ("k", 512, 2880), ("v", 512, 2880), ("o", 2880, 4096)):
            yield _bf16(f"{prefix}.self_attn.{name}_proj.weight", rows, columns)
            yield _bf16(f"{prefix}.self_attn.{name}_proj.bias", rows)
        yield _bf16(f"{prefix}.self_attn.sinks", 64)
        yield _bf16(f"{prefix}.mlp.router.weight", 32, 2880)
        yield _bf16(f"{prefix}.mlp.router.bias", 32)
        for name, rows in (("gate_up_proj", 5760), ("down_proj", 2880)):
            yield f"{prefix}.mlp.experts.{name}_blocks", "U8", (32, rows, 90, 16)
            yield f"{prefix}.mlp.experts.{name}_scales", "U8", (32, rows, 90)
            yield _bf16(f"{prefix}.mlp.experts.{name}_bias", 32, rows)
        yield _bf16(f"{prefix}.input_layernorm.weight", 2880)
        yield _bf16(f"{prefix}.post_attention_layernorm.weight", 2880)
    yield _bf16("model.norm.weight", 2880)
    yield _bf16("lm_head.weight", 201088, 2880)


GPT_OSS_20B = Release(
    name="gpt-oss-20b",
    title="gpt-oss-20b",
    tensors=_gpt_oss_20b,
    shards=numbered(3, first=0, last=2),
    files={
        "config.json": {
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "hidden_size": 2880,
            "num_hidden_layers": 24,
            "num_local_experts": 32,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            },
        }
    },
    contract="openai.mxfp4@1",
    account=Account(weights=48, sidecars=48, unquantized=363),
    payload_bytes=13_761_264_768,
    published="The names of the index, its three shards 0 to 2 of 2, its sum of 13,761,264,768 bytes, 48 units; the configuration.",
    derived="All shapes, from the configuration; they come to that sum.",
    notes=("no decoder installed here reads openai.mxfp4@1",),
    damage=Damage("model.layers.23.mlp.experts.down_proj_scales", ("U8", (32, 2880, 89)), "scale-grid"),
)

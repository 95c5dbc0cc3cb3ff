"""Language models with a vision encoder: Ministral-3 in both of its formats, and Llama-4-Scout in ModelOpt's NVFP4."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.releases.facts import Account, Damage, Release, numbered
from tests.support.releases.sparse_shards import Tensor


def _bf16(name: str, *shape: int) -> Tensor:
    return name, "BF16", shape


def _with_bias(module: str, *shape: int) -> Iterator[Tensor]:
    yield _bf16(f"{module}.weight", *shape)
    yield _bf16(f"{module}.bias", *shape[:1])


# Ministral-3-3B: 26 layers, and a vision encoder of 24. The head is tied to the embedding.

_ATTENTION = (("q", 4096, 3072), ("k", 1024, 3072), ("v", 1024, 3072), ("o", 3072, 4096))
_FEED_FORWARD = (("gate", "w1", 9216, 3072), ("up", "w3", 9216, 3072), ("down", "w2", 3072, 9216))


def _ministral() -> Iterator[Tensor]:
    text = "language_model.model"
    yield _bf16(f"{text}.embed_tokens.weight", 131072, 3072)
    for layer in range(26):
        prefix = f"{text}.layers.{layer}"
        for name, rows, columns in _ATTENTION:
            yield from _static(f"{prefix}.self_attn.{name}_proj", rows, columns, "weight_scale_inv", "activation_scale")
        for name, _, rows, columns in _FEED_FORWARD:
            yield from _static(f"{prefix}.mlp.{name}_proj", rows, columns, "weight_scale_inv", "activation_scale")
        yield _bf16(f"{prefix}.input_layernorm.weight", 3072)
        yield _bf16(f"{prefix}.post_attention_layernorm.weight", 3072)
    yield _bf16(f"{text}.norm.weight", 3072)
    yield from _pixtral("vision_tower", "attention.{}_proj", "feed_forward.{}_proj", use=0)
    for name, columns in (("linear_1", 1024), ("linear_2", 3072)):
        yield _bf16(f"multi_modal_projector.{name}.weight", 3072, columns)
    yield _bf16("multi_modal_projector.norm.weight", 1024)
    yield _bf16("multi_modal_projector.patch_merger.merging_layer.weight", 1024, 4096)


def _ministral_native() -> Iterator[Tensor]:
    yield _bf16("tok_embeddings.weight", 131072, 3072)
    for layer in range(26):
        prefix = f"layers.{layer}"
        for name, rows, columns in _ATTENTION:
            yield from _static(f"{prefix}.attention.w{name}", rows, columns, "qscale_weight", "qscale_act")
        for name in "qkv":  # what the cache is scaled with
            yield _bf16(f"{prefix}.attention.{name}_fake_quantizer.qscale_act")
        for _, name, rows, columns in _FEED_FORWARD:
            yield from _static(f"{prefix}.feed_forward.{name}", rows, columns, "qscale_weight", "qscale_act")
        yield _bf16(f"{prefix}.attention_norm.weight", 3072)
        yield _bf16(f"{prefix}.ffn_norm.weight", 3072)
    yield _bf16("norm.weight", 3072)
    yield from _pixtral("vision_encoder", "attention.w{}", "feed_forward.{}", use=1)
    for name, columns in (("w_in", 1024), ("w_out", 3072)):
        yield _bf16(f"vision_language_adapter.{name}.weight", 3072, columns)
    yield _bf16("pre_mm_projector_norm.weight", 1024)
    yield _bf16("patch_merger.merging_layer.weight", 1024, 4096)


def _static(module: str, rows: int, columns: int, scale: str, activation: str) -> Iterator[Tensor]:
    yield f"{module}.weight", "F8_E4M3", (rows, columns)
    yield _bf16(f"{module}.{scale}")
    yield _bf16(f"{module}.{activation}")


def _pixtral(prefix: str, attention: str, feed_forward: str, *, use: int) -> Iterator[Tensor]:
    """Yield the vision encoder; `use` says which name of a feed-forward matrix the format has."""
    yield _bf16(f"{prefix}.patch_conv.weight", 1024, 3, 14, 14)
    yield _bf16(f"{prefix}.ln_pre.weight", 1024)
    for layer in range(24):
        block = f"{prefix}.transformer.layers.{layer}"
        for name in "qkvo":
            yield _bf16(f"{block}.{attention.format(name)}.weight", 1024, 1024)
        for names in (("gate", "w1"), ("up", "w3")):
            yield _bf16(f"{block}.{feed_forward.format(names[use])}.weight", 4096, 1024)
        yield _bf16(f"{block}.{feed_forward.format(('down', 'w2')[use])}.weight", 1024, 4096)
        yield _bf16(f"{block}.attention_norm.weight", 1024)
        yield _bf16(f"{block}.ffn_norm.weight", 1024)


_PARAMS = {
    "dim": 3072,
    "n_layers": 26,
    "head_dim": 128,
    "hidden_dim": 9216,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 131072,
    "tied_embeddings": True,
    "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"},
}

MINISTRAL_3 = Release(
    name="ministral-3-3b",
    title="Ministral-3-3B, both formats in one folder",
    tensors=_ministral,
    files={
        "config.json": {
            "architectures": ["Mistral3ForConditionalGeneration"],
            "model_type": "mistral3",
            "text_config": {"model_type": "ministral3", "hidden_size": 3072, "num_hidden_layers": 26, "tie_word_embeddings": True},
            "quantization_config": {
                "quant_method": "fp8",
                "activation_scheme": "static",
                "weight_block_size": None,
                "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
            },
        },
        "params.json": _PARAMS,
    },
    beside={"consolidated.safetensors": _ministral_native},
    contract="hf.fp8-tensor-static@1",
    account=Account(weights=26 * 7, sidecars=26 * 14, unquantized=26 * 2 + 2 + 24 * 9 + 2 + 4),
    payload_bytes=4_671_990_488,
    published="The names and declarations of both formats, wq [4096, 3072], scalar BF16 scales; params.json; the exclusion list.",
    derived="The other shapes, from params.json; those of the vision encoder from its configuration.",
    notes=(
        "no decoder installed here reads hf.fp8-tensor-static@1",
        "not part of the checkpoint and not read: consolidated.safetensors",
    ),
    damage=Damage("language_model.model.layers.25.mlp.down_proj.weight_scale_inv", ("BF16", (24, 72)), "scale-rank"),
)

MINISTRAL_3_NATIVE = Release(
    name="ministral-3-3b-native",
    title="Ministral-3-3B in Mistral's own format",
    tensors=_ministral_native,
    shards=("consolidated.safetensors",),
    files={"params.json": _PARAMS},
    contract="mistral.fp8-tensor@1",
    account=Account(weights=26 * 7, sidecars=26 * 14, unquantized=26 * 2 + 2 + 24 * 9 + 2 + 4, cache_scales=26 * 3),
    payload_bytes=4_671_990_644,
    published="The names and the declaration, wq [4096, 3072], scalar BF16 scales and three fake quantizers in each layer; params.json.",
    derived="The other shapes, from params.json; those of the vision encoder from its configuration.",
    notes=("no decoder installed here reads mistral.fp8-tensor@1", "78 key or value cache scales"),
    damage=Damage("layers.3.attention.wo.qscale_weight", None, "scale-missing", "layers.3.attention.wo.weight"),
)


# Llama-4-Scout: 48 layers of 16 experts, stacked and transposed; the vision encoder of 34 layers is BF16.

_SCOUT = "language_model.model"


def _scout() -> Iterator[Tensor]:
    yield _bf16(f"{_SCOUT}.embed_tokens.weight", 202048, 5120)
    for layer in range(48):
        prefix = f"{_SCOUT}.layers.{layer}"
        for name, rows in (("q", 5120), ("k", 1024), ("v", 1024), ("o", 5120)):
            yield from _packed(f"{prefix}.self_attn.{name}_proj", rows, 5120)
        for name in "kv":
            yield f"{prefix}.self_attn.{name}_proj.{name}_scale", "F32", ()
        yield from _stacked(f"{prefix}.feed_forward.experts.gate_up_proj", 5120, 16384)
        yield from _stacked(f"{prefix}.feed_forward.experts.down_proj", 8192, 5120)
        yield _bf16(f"{prefix}.feed_forward.router.weight", 16, 5120)
        yield from _packed(f"{prefix}.feed_forward.shared_expert.gate_proj", 8192, 5120)
        yield from _packed(f"{prefix}.feed_forward.shared_expert.up_proj", 8192, 5120)
        yield from _packed(f"{prefix}.feed_forward.shared_expert.down_proj", 5120, 8192)
        yield _bf16(f"{prefix}.input_layernorm.weight", 5120)
        yield _bf16(f"{prefix}.post_attention_layernorm.weight", 5120)
    yield _bf16(f"{_SCOUT}.norm.weight", 5120)
    yield _bf16("language_model.lm_head.weight", 202048, 5120)
    yield _bf16("multi_modal_projector.linear_1.weight", 5120, 4096)
    yield from _scout_vision("vision_model")


def _packed(module: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield f"{module}.weight", "U8", (rows, columns // 2)
    yield f"{module}.weight_scale", "F8_E4M3", (rows, columns // 16)
    yield f"{module}.weight_scale_2", "F32", ()
    yield f"{module}.input_scale", "F32", ()


def _stacked(parameter: str, columns: int, rows: int) -> Iterator[Tensor]:
    yield parameter, "U8", (16, columns // 2, rows)
    yield f"{parameter}_weight_scale", "F8_E4M3", (16, columns // 16, rows)
    yield f"{parameter}_weight_scale_2", "F32", ()
    yield f"{parameter}_input_scale", "F32", ()


def _scout_vision(prefix: str) -> Iterator[Tensor]:
    yield _bf16(f"{prefix}.class_embedding", 1408)
    yield _bf16(f"{prefix}.positional_embedding_vlm", 577, 1408)
    yield _bf16(f"{prefix}.patch_embedding.linear.weight", 1408, 588)
    for norm in ("layernorm_pre", "layernorm_post"):
        yield from _with_bias(f"{prefix}.{norm}", 1408)
    for layer in range(34):
        block = f"{prefix}.model.layers.{layer}"
        for name in "qkvo":
            yield from _with_bias(f"{block}.self_attn.{name}_proj", 1408, 1408)
        yield from _with_bias(f"{block}.mlp.fc1", 5632, 1408)
        yield from _with_bias(f"{block}.mlp.fc2", 1408, 5632)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield from _with_bias(f"{block}.{norm}", 1408)
    yield _bf16(f"{prefix}.vision_adapter.mlp.fc1.weight", 4096, 5632)
    yield _bf16(f"{prefix}.vision_adapter.mlp.fc2.weight", 4096, 4096)


LLAMA_4_SCOUT_NVFP4 = Release(
    name="llama-4-scout-nvfp4",
    title="Llama-4-Scout-17B-16E-Instruct-NVFP4",
    tensors=_scout,
    shards=numbered(14),
    files={
        "config.json": {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4"},
        "hf_quant_config.json": {
            "producer": {"name": "modelopt"},
            "quantization": {
                "quant_algo": "NVFP4",
                "kv_cache_quant_algo": "FP8",
                "group_size": 16,
                "exclude_modules": [
                    "language_model.model.layers.*.feed_forward.router",
                    "language_model.lm_head",
                    "multi_modal_projector*",
                    "vision_model*",
                ],
            },
        },
    },
    contract="modelopt.nvfp4@1",
    # In each layer four projections, three matrices of the shared expert and two stacks.
    account=Account(weights=48 * 9, sidecars=48 * 27, unquantized=48 * 3 + 4 + 34 * 16 + 9, cache_scales=48 * 2),
    payload_bytes=65_344_928_512,
    published="The stacks and their sidecars with names, dtypes and shapes, 14 shards, the declaration, the configuration.",
    derived="The other shapes, from the configuration. Which modules are excluded is inferred.",
    notes=("no decoder installed here reads modelopt.nvfp4@1", "96 key or value cache scales"),
    damage=Damage(f"{_SCOUT}.layers.7.feed_forward.experts.down_proj_weight_scale", ("F8_E4M3", (16, 5120, 512)), "scale-grid-transposed"),
)

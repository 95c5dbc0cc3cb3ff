"""Three published checkpoints in their true geometry, as sparse files: every header byte is real, every payload is a hole.

`h3_conditioner` is 27.6 GB in one shard, `qwen38_27b` 31 GB in 66 and `deepseek_v3` 689 GB in 163; together they take 13 MB on disk.
Only the standard library is imported, so that a demo and a benchmark can use this module as it is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.releases.sparse_shards import Tensor, write_shards, write_with_hole

_DATA = Path(__file__).parents[1] / "data"
_BLOCK = 128


def h3_conditioner(folder: Path) -> Path:
    """Write the text encoder of 27,620,655,224 bytes whose real header lies in `data`: 357 units with F32 grids; return `folder`."""
    header = (_DATA / "h3-conditioner.header.bin").read_bytes()
    entries = json.loads(header[8:])
    payload = max(entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
    folder.mkdir(parents=True, exist_ok=True)
    write_with_hole(folder / "model.safetensors", header, payload)
    shutil.copyfile(_DATA / "h3-conditioner.config.json", folder / "config.json")
    return folder


def qwen38_27b(folder: Path) -> Path:
    """Write Qwen3.8-27B-FP8: 66 shards, 1,606 tensors, 407 units with BF16 grids, 7 of them for multi-token prediction; return `folder`."""
    declaration = {**_FP8, "modules_to_not_convert": list(qwen38_27b_exclusions())}
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "quantization_config": declaration,
        "text_config": {"hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64, "vocab_size": 248320},
        "tie_word_embeddings": False,
    }
    return write_shards(folder, list(qwen38_27b_tensors()), 66, config)


def deepseek_v3(folder: Path) -> Path:
    """Write DeepSeek-V3: 163 shards, 91,991 tensors, 45,808 units with F32 grids, some of them in another shard than their weight."""
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 1,
        "n_routed_experts": 256,
        "quantization_config": _FP8,
    }
    return write_shards(folder, list(deepseek_v3_tensors()), 163, config, digits=6)


_FP8: Mapping[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [_BLOCK, _BLOCK]}


# Qwen3.8-27B-FP8. Published: the counts, the shapes of most weights, BF16 for every scale. Inferred: the other shapes.


def qwen38_27b_tensors() -> Iterator[Tensor]:
    """Yield 1,251 text tensors, 333 visual ones and 22 for multi-token prediction."""
    yield from _unquantized("model.language_model.embed_tokens.weight", 248320, 5120)
    for layer in range(64):
        yield from _qwen_layer(f"model.language_model.layers.{layer}", full_attention=layer % 4 == 3)
    yield from _unquantized("model.language_model.norm.weight", 5120)
    yield from _unquantized("lm_head.weight", 248320, 5120)
    yield from _qwen_visual("model.visual")
    yield from _unquantized("mtp.fc.weight", 5120, 10240)
    yield from _qwen_layer("mtp.layers.0", full_attention=True)
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield from _unquantized(f"mtp.{norm}.weight", 5120)


def _qwen_layer(prefix: str, *, full_attention: bool) -> Iterator[Tensor]:
    """Every fourth layer attends to everything; the others are gated delta networks (GDN)."""
    if full_attention:
        attention = f"{prefix}.self_attn"
        yield from _fp8(f"{attention}.q_proj", 12288, 5120, "BF16")  # query and gate
        yield from _fp8(f"{attention}.k_proj", 1024, 5120, "BF16")
        yield from _fp8(f"{attention}.v_proj", 1024, 5120, "BF16")
        yield from _fp8(f"{attention}.o_proj", 5120, 6144, "BF16")
        yield from _unquantized(f"{attention}.q_norm.weight", 256)
        yield from _unquantized(f"{attention}.k_norm.weight", 256)
    else:
        attention = f"{prefix}.linear_attn"
        yield from _fp8(f"{attention}.in_proj_qkv", 10240, 5120, "BF16")
        yield from _fp8(f"{attention}.in_proj_z", 6144, 5120, "BF16")
        yield from _fp8(f"{attention}.out_proj", 5120, 6144, "BF16")
        yield from _unquantized(f"{attention}.in_proj_a.weight", 48, 5120)
        yield from _unquantized(f"{attention}.in_proj_b.weight", 48, 5120)
        yield from _unquantized(f"{attention}.conv1d.weight", 10240, 1, 4)
        yield from _unquantized(f"{attention}.A_log", 48)
        yield from _unquantized(f"{attention}.dt_bias", 48)
        yield from _unquantized(f"{attention}.norm.weight", 128)
    yield from _fp8(f"{prefix}.mlp.gate_proj", 17408, 5120, "BF16")
    yield from _fp8(f"{prefix}.mlp.up_proj", 17408, 5120, "BF16")
    yield from _fp8(f"{prefix}.mlp.down_proj", 5120, 17408, "BF16")
    yield from _unquantized(f"{prefix}.input_layernorm.weight", 5120)
    yield from _unquantized(f"{prefix}.post_attention_layernorm.weight", 5120)


def _qwen_visual(prefix: str) -> Iterator[Tensor]:
    """27 blocks of 12 tensors, the patch embedding, the positions and the merger: 333."""
    yield from _dense_with_bias(f"{prefix}.patch_embed.proj", 1152, 3, 2, 16, 16)
    yield from _unquantized(f"{prefix}.pos_embed.weight", 2304, 1152)
    for block in range(27):
        for norm in ("norm1", "norm2"):
            yield from _dense_with_bias(f"{prefix}.blocks.{block}.{norm}", 1152)
        yield from _dense_with_bias(f"{prefix}.blocks.{block}.attn.qkv", 3456, 1152)
        yield from _dense_with_bias(f"{prefix}.blocks.{block}.attn.proj", 1152, 1152)
        yield from _dense_with_bias(f"{prefix}.blocks.{block}.mlp.linear_fc1", 4304, 1152)
        yield from _dense_with_bias(f"{prefix}.blocks.{block}.mlp.linear_fc2", 1152, 4304)
    yield from _dense_with_bias(f"{prefix}.merger.norm", 1152)
    yield from _dense_with_bias(f"{prefix}.merger.linear_fc1", 4608, 4608)
    yield from _dense_with_bias(f"{prefix}.merger.linear_fc2", 5120, 4608)


def qwen38_27b_exclusions() -> Iterator[str]:
    """Yield 882 entries. The number is published, and that norms and conv1d are among them; which entries they are is inferred.

    All 530 modules with an unquantized weight, and the 352 of the text layers once more under the name that the text model gives them.
    """
    weights = [name for name, dtype, _ in qwen38_27b_tensors() if name.endswith(".weight") and dtype == "BF16"]
    modules = [name.removesuffix(".weight") for name in weights]
    yield from modules
    for module in modules:
        if module.startswith("model.language_model.layers."):
            yield module.replace("model.language_model.", "model.", 1)


# DeepSeek-V3: 61 layers, the first 3 unquantized, and layer 61 for multi-token prediction.


def deepseek_v3_tensors() -> Iterator[Tensor]:
    """Yield 91,991 tensors: 45,808 units of two tensors and 375 unquantized ones."""
    yield from _unquantized("model.embed_tokens.weight", 129280, 7168)
    for layer in range(62):
        prefix = f"model.layers.{layer}"
        multi_token = layer == 61
        if multi_token:
            yield from _unquantized(f"{prefix}.embed_tokens.weight", 129280, 7168)
            yield from _unquantized(f"{prefix}.enorm.weight", 7168)
            yield from _unquantized(f"{prefix}.hnorm.weight", 7168)
            yield from _unquantized(f"{prefix}.eh_proj.weight", 7168, 14336)
        yield from _deepseek_attention(f"{prefix}.self_attn")
        yield from _unquantized(f"{prefix}.input_layernorm.weight", 7168)
        yield from _unquantized(f"{prefix}.post_attention_layernorm.weight", 7168)
        if layer < 3:
            yield from _feed_forward(f"{prefix}.mlp", 18432)
        else:
            yield from _unquantized(f"{prefix}.mlp.gate.weight", 256, 7168)
            yield f"{prefix}.mlp.gate.e_score_correction_bias", "F32", (256,)
            for expert in range(256):
                yield from _feed_forward(f"{prefix}.mlp.experts.{expert}", 2048)
            yield from _feed_forward(f"{prefix}.mlp.shared_experts", 2048)
        if multi_token:
            yield from _unquantized(f"{prefix}.shared_head.norm.weight", 7168)
            yield from _unquantized(f"{prefix}.shared_head.head.weight", 129280, 7168)
    yield from _unquantized("model.norm.weight", 7168)
    yield from _unquantized("lm_head.weight", 129280, 7168)


def _deepseek_attention(prefix: str) -> Iterator[Tensor]:
    yield from _fp8(f"{prefix}.q_a_proj", 1536, 7168)
    yield from _unquantized(f"{prefix}.q_a_layernorm.weight", 1536)
    yield from _fp8(f"{prefix}.q_b_proj", 24576, 1536)
    yield from _fp8(f"{prefix}.kv_a_proj_with_mqa", 576, 7168)  # the last row of blocks covers 64 rows
    yield from _unquantized(f"{prefix}.kv_a_layernorm.weight", 512)
    yield from _fp8(f"{prefix}.kv_b_proj", 32768, 512)
    yield from _fp8(f"{prefix}.o_proj", 7168, 16384)


def _feed_forward(prefix: str, intermediate: int) -> Iterator[Tensor]:
    yield from _fp8(f"{prefix}.gate_proj", intermediate, 7168)
    yield from _fp8(f"{prefix}.up_proj", intermediate, 7168)
    yield from _fp8(f"{prefix}.down_proj", 7168, intermediate)


# Tensors.


def _fp8(module: str, rows: int, columns: int, scale: str = "F32") -> Iterator[Tensor]:
    yield f"{module}.weight", "F8_E4M3", (rows, columns)
    yield f"{module}.weight_scale_inv", scale, (-(-rows // _BLOCK), -(-columns // _BLOCK))


def _unquantized(name: str, *shape: int) -> Iterator[Tensor]:
    yield name, "BF16", shape


def _dense_with_bias(module: str, *shape: int) -> Iterator[Tensor]:
    yield f"{module}.weight", "BF16", shape
    yield f"{module}.bias", "BF16", shape[:1]

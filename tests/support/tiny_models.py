"""Tiny models with real weights, written by the libraries that write published ones; for tests and demos, a second each.

The models are built from a configuration, without a network, in sizes that leave a partial block at every edge. Block FP8 is made by the
small producer below, which rounds each scale before it divides by it; compressed-tensors writes its own checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may ask a network
os.environ.setdefault("TQDM_DISABLE", "1")

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

#: The largest finite E4M3 value. A cast beyond it gives NaN or saturates, by library and version, so that the clamp is explicit.
E4M3_MAX = 448.0

_BLOCK = 128
_SIZES: Mapping[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "vocab_size": 256,
    "tie_word_embeddings": False,
}
_DECLARATION: Mapping[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [_BLOCK, _BLOCK],
}


def dense_llama(folder: Path) -> Path:
    """Write an unquantized BF16 Llama of two layers; return `folder`."""
    _built(lambda: LlamaForCausalLM(LlamaConfig(**_SIZES))).save_pretrained(folder)
    return folder


def dense_qwen3_moe(folder: Path) -> Path:
    """Write an unquantized BF16 Qwen3-MoE of two layers with four experts, one matrix for each expert on disk; return `folder`."""
    config = Qwen3MoeConfig(**_SIZES, moe_intermediate_size=160, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1)
    _built(lambda: Qwen3MoeForCausalLM(config)).save_pretrained(folder)
    return folder


def dense_qwen3(folder: Path) -> Path:
    """Write an unquantized BF16 Qwen3 of two layers, with norms of queries and keys; return `folder`."""
    _built(lambda: Qwen3ForCausalLM(Qwen3Config(**_SIZES))).save_pretrained(folder)
    return folder


def dense_qwen3_next(folder: Path) -> Path:
    """Write an unquantized BF16 Qwen3-Next of four layers, three of them with linear attention; return `folder`."""
    linear = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 48, "linear_value_head_dim": 48}
    experts = {"moe_intermediate_size": 160, "shared_expert_intermediate_size": 160, "num_experts": 4, "num_experts_per_tok": 2}
    config = Qwen3NextConfig(**{**_SIZES, "num_hidden_layers": 4}, **linear, **experts)
    _built(lambda: Qwen3NextForCausalLM(config)).save_pretrained(folder)
    return folder


def dense_deepseek_v3(folder: Path) -> Path:
    """Write an unquantized BF16 DeepSeek-V3 of two layers whose kv_a projection has 576 rows, as the published one; return `folder`."""
    latent = {"q_lora_rank": 96, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64}
    experts = {"moe_intermediate_size": 160, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}
    sizes = {**_SIZES, "hidden_size": 256, "num_key_value_heads": 4}
    del sizes["head_dim"]
    config = DeepseekV3Config(**sizes, **latent, **experts, first_k_dense_replace=1)
    _built(lambda: DeepseekV3ForCausalLM(config)).save_pretrained(folder)
    return folder


def fp8(write_dense: Callable[[Path], Path], folder: Path, scale_dtype: torch.dtype = torch.float32) -> Path:
    """Write one of the unquantized models in block FP8, in one file; return `folder`."""
    return _quantized(write_dense, folder, scale_dtype, shards=1)


def fp8_llama(folder: Path, scale_dtype: torch.dtype = torch.float32) -> Path:
    """Write the Llama in block FP8, 14 units; return `folder`."""
    return _quantized(dense_llama, folder, scale_dtype, shards=1)


def fp8_qwen3_moe(folder: Path, scale_dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write the Qwen3-MoE in block FP8, 32 units in two shards; return `folder`."""
    return _quantized(dense_qwen3_moe, folder, scale_dtype, shards=2)


def compressed_llama(folder: Path, scheme: Literal["FP8_BLOCK", "FP8_DYNAMIC"]) -> Path:
    """Write the Llama as compressed-tensors does, scales by block or by row (`FP8_DYNAMIC`); return `folder`."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
    from loguru import logger

    logger.disable("compressed_tensors")  # it warns of each partial block
    model = _built(lambda: LlamaForCausalLM(LlamaConfig(**_SIZES)))
    groups = {"group_0": preset_name_to_scheme(scheme, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    block = (_BLOCK, _BLOCK) if scheme == "FP8_BLOCK" else (1, 1 << 30)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data.copy_(block_scales(module.weight.data, module.weight_scale.dtype, block))
            if getattr(module, "weight_zero_point", None) is not None:
                module.weight_zero_point.data.zero_()
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    return folder


def block_scales(weight: torch.Tensor, dtype: torch.dtype, block: tuple[int, int] = (_BLOCK, _BLOCK)) -> torch.Tensor:
    """Return the scale of each block of a weight `[out, in]`: its largest magnitude over 448, in float64, rounded once to `dtype`.

    A block of zeros gets the scale 1. The grid is `[out / rows, in / columns]`, rounded up.
    """
    rows, columns = min(block[0], weight.shape[0]), min(block[1], weight.shape[1])
    grid = (-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
    padded = torch.zeros(grid[0] * rows, grid[1] * columns, dtype=torch.float64)
    padded[: weight.shape[0], : weight.shape[1]] = weight.double().abs()
    largest = padded.view(grid[0], rows, grid[1], columns).amax(dim=(1, 3))
    return torch.where(largest == 0, torch.ones_like(largest), largest / E4M3_MAX).to(dtype)


def quantize(weight: torch.Tensor, scale_dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return E4M3 codes and the scale grid of a weight `[out, in]`. The weight is divided by the scale that is stored."""
    scale = block_scales(weight, scale_dtype)
    spread = expand(scale, weight.shape)
    codes = (weight.double() / spread).clamp(-E4M3_MAX, E4M3_MAX).float().to(torch.float8_e4m3fn)
    return codes, scale


def expand(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the scale of each element, in float64, for a weight of this shape."""
    rows = scale.double().repeat_interleave(_BLOCK, dim=0)[: shape[0]]
    return rows.repeat_interleave(_BLOCK, dim=1)[:, : shape[1]]


def _built(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Build a model with the same weights at each call, and leave the caller's random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20240229)
        return build().to(torch.bfloat16).eval()


def _quantized(write_dense: Callable[[Path], Path], folder: Path, scale_dtype: torch.dtype, shards: int) -> Path:
    """Quantize every projection of the layers; embeddings, head, norms and routers stay as they are and are declared so."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    excluded = []
    with tempfile.TemporaryDirectory() as unquantized:
        source = write_dense(Path(unquantized))
        for name, tensor in load_file(source / "model.safetensors").items():
            if name.endswith(("_proj.weight", "_proj_with_mqa.weight")):
                tensors[name], tensors[f"{name}_scale_inv"] = quantize(tensor, scale_dtype)
            else:
                tensors[name] = tensor
                excluded.append(name.removesuffix(".weight"))
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        if (source / "generation_config.json").exists():
            shutil.copyfile(source / "generation_config.json", folder / "generation_config.json")
    config["quantization_config"] = {**_DECLARATION, "modules_to_not_convert": excluded}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    _save(folder, tensors, shards)
    return folder


def _save(folder: Path, tensors: Mapping[str, torch.Tensor], shards: int) -> None:
    """Write the tensors with the safetensors library, in turn to each shard, so that most scales lie beside another weight."""
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[number::shards])
        save_file(part, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, name))
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")

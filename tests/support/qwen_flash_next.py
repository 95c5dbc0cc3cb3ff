"""Qwen3.8-Flash-Next-FP8 in full geometry, as sparse files: block FP8, and a table in 128 shards that share one scale.

Published: the counts, the experts of 640 x 2560, and names and shapes of the table. Inferred: the attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.checkpoint_files import write_checkpoint
from tests.support.trees import Tree, blocks, fp8_config

LAYERS, EXPERTS, HIDDEN, INNER = 48, 512, 2560, 640
TABLE = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding"


def write_flash_next(folder: Path, shards: int = 40) -> Path:
    """Write 75,567 units with BF16 grids, and 128 that share a scalar; return `folder`."""
    return write_checkpoint(folder, flash_next(), config=fp8_config(modules_to_not_convert=["lm_head"]), shards=shards)


def flash_next() -> Tree:
    """Return every tensor with its geometry."""
    tensors: Tree = {"model.language_model.embed_tokens.weight": ("BF16", (248320, HIDDEN))}
    for layer in range(LAYERS):
        prefix = f"model.language_model.layers.{layer}"
        for module, rows, columns in (*_attention(layer), *_experts()):
            tensors |= _unit(f"{prefix}.{module}", rows, columns)
        tensors |= _unquantized(prefix)
    for module, rows, columns in _experts():
        tensors |= _unit(f"mtp.layers.0.{module}", rows, columns)
    tensors |= _unquantized("mtp.layers.0")
    tensors |= {f"{TABLE}.shard_{number}.weight": ("F8_E4M3", (2500012, 160)) for number in range(128)}
    tensors[f"{TABLE}.weight_scale"] = ("BF16", ())
    tensors["lm_head.weight"] = ("BF16", (248320, HIDDEN))
    return tensors


def _attention(layer: int) -> Iterator[tuple[str, int, int]]:
    """Every fourth layer attends to everything; the others are gated delta networks."""
    if layer % 4 == 3:
        yield from ((f"self_attn.{name}", rows, HIDDEN) for name, rows in (("q_proj", 8192), ("k_proj", 512), ("v_proj", 512)))
        yield "self_attn.o_proj", HIDDEN, 4096
    else:
        yield from ((f"linear_attn.{name}", rows, HIDDEN) for name, rows in (("in_proj_qkv", 8192), ("in_proj_z", 4096)))
        yield "linear_attn.out_proj", HIDDEN, 4096


def _experts() -> Iterator[tuple[str, int, int]]:
    for expert in (*(f"mlp.experts.{number}" for number in range(EXPERTS)), "mlp.shared_expert"):
        yield f"{expert}.gate_proj", INNER, HIDDEN
        yield f"{expert}.up_proj", INNER, HIDDEN
        yield f"{expert}.down_proj", HIDDEN, INNER


def _unit(module: str, rows: int, columns: int) -> Tree:
    return {f"{module}.weight": ("F8_E4M3", (rows, columns)), f"{module}.weight_scale_inv": ("BF16", blocks((rows, columns)))}


def _unquantized(prefix: str) -> Tree:
    return {
        f"{prefix}.input_layernorm.weight": ("BF16", (HIDDEN,)),
        f"{prefix}.post_attention_layernorm.weight": ("BF16", (HIDDEN,)),
        f"{prefix}.mlp.gate.weight": ("BF16", (EXPERTS, HIDDEN)),
    }

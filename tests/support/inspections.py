"""Inspections for the tests of reports: accepted, refused in more ways than one, unreadable, and a pipeline."""

from __future__ import annotations

import json
from pathlib import Path

from tensorhub_contracts import Inspection, inspect
from tests.support.checkpoint_files import write_checkpoint
from tests.support.trees import Tree, bf16, fp8_config, stacked_unit, unit

#: Text that breaks a format that does not escape it.
HOSTILE = "a\x1b[31m\x00\ufffe&<>\"']]>%0A::error::\r\n,:b"


def accepted(folder: Path) -> Inspection:
    """Two shards, a stacked unit, a unit whose grid is square, and one for multi-token prediction."""
    tensors = {
        **unit("model.layers.0.q_proj", 256, 384),
        **unit("model.layers.0.k_proj", 256, 256, scale="BF16"),
        **stacked_unit("model.layers.1.mlp.experts.gate_up_proj", 4, 256, 384),
        **unit("model.layers.2.q_proj", 256, 384),
        **unit("mtp.layers.0.q_proj", 256, 384),
        **bf16("model.norm.weight", 256),
        **bf16("lm_head.weight", 512, 256),
    }
    # The scales lie in the second shard: a unit is reported in the shard of its weight.
    placement = {name: 2 if "scale" in name else 1 for name in tensors}
    config = {**fp8_config(modules_to_not_convert=["lm_head", "absent"]), "num_hidden_layers": 2}
    write_checkpoint(folder, tensors, config=config, shards=2, placement=placement)
    return inspect(folder)


def refused(folder: Path) -> Inspection:
    """Five transposed grids and one missing scale, beside a good unit."""
    tensors: Tree = unit("model.layers.9.q_proj", 256, 384)
    for number in range(5):
        tensors[f"model.layers.{number}.q_proj.weight"] = ("F8_E4M3", (256, 384))
        tensors[f"model.layers.{number}.q_proj.weight_scale_inv"] = ("F32", (3, 2))
    tensors["model.layers.7.up_proj.weight"] = ("F8_E4M3", (256, 384))
    return inspect(write_checkpoint(folder, tensors, config=fp8_config()))


def unreadable(folder: Path) -> Inspection:
    """An empty file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(b"")
    return inspect(folder)


def pipeline(folder: Path) -> list[Inspection]:
    """One component accepted, one refused."""
    listed = {"_class_name": "Pipe", "text_encoder": ["transformers", "T5"], "transformer": ["diffusers", "Flux"]}
    accepted(folder / "text_encoder")
    refused(folder / "transformer")
    (folder / "model_index.json").write_text(json.dumps(listed), encoding="utf-8")
    return [inspect(folder, name) for name in ("text_encoder", "transformer")]


def hostile(folder: Path) -> Inspection:
    """Transposed grids under names that no format may take as its own syntax."""
    tensors: Tree = {f"{HOSTILE}.weight": ("F8_E4M3", (256, 384)), f"{HOSTILE}.weight_scale_inv": ("F32", (3, 2))}
    return inspect(write_checkpoint(folder, tensors, config=fp8_config()))

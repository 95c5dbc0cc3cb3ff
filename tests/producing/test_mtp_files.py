"""What the inspection sees in `mtp*.safetensors` beside a model, the commands and `load` see, too, and what they write lists it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tensorhub_contracts import inspect
from tensorhub_contracts import load as load_weights
from tests.support.conversions import BLOCKWISE, done, noise, save

Q, MTP_Q = "model.layers.0.q_proj.weight", "mtp.layers.0.q_proj.weight"


def dense(folder: Path, shards: int) -> Path:
    body = {Q: noise(256, 384), "model.norm.weight": noise(384)}
    parts = [body] if shards == 1 else [{name: tensor} for name, tensor in body.items()]
    save(folder, *parts, config={"model_type": "x"})
    save_file({MTP_Q: noise(256, 256)}, folder / "mtp.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("shards", [1, 2])
def test_it_is_produced_loaded_and_decoded_with_the_model(shards: int, tmp_path: Path) -> None:
    source = dense(tmp_path / "dense", shards)
    done("produce", source, tmp_path / "fp8", "--to", BLOCKWISE)
    inspection = inspect(tmp_path / "fp8").require()
    assert set(inspection.layouts) == {Q, MTP_Q}
    stored = load_file(tmp_path / "fp8" / "mtp.safetensors")
    assert set(stored) == {MTP_Q, f"{MTP_Q}_scale_inv"}
    (index,) = (tmp_path / "fp8").glob("*.index.json")
    weight_map = json.loads(index.read_text())["weight_map"]
    assert weight_map[MTP_Q] == weight_map[f"{MTP_Q}_scale_inv"] == "mtp.safetensors"
    assert inspection.checkpoint is not None
    assert set(weight_map) == set(inspection.checkpoint.shard_of)

    weights = load_weights(tmp_path / "fp8", dtype="BF16", resident=False).weights
    done("decode", tmp_path / "fp8", tmp_path / "back", "--to", "plain.bf16@1")
    back = load_file(tmp_path / "back" / "mtp.safetensors")
    assert torch.equal(back[MTP_Q], weights[MTP_Q])
    assert set(load_weights(tmp_path / "back", dtype="BF16", resident=False).weights) == {Q, MTP_Q, "model.norm.weight"}

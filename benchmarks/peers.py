"""What the benchmark compares with: the same checks, written as a user of each library would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

BLOCK = 128


def _judge(tensors: dict[str, tuple[str, list[int]]], shard_of: dict[str, str], folder: Path) -> int:
    """Check names, dtypes, grids and the index; return how many FP8 weights there are, or raise."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    if config["quant_method"] != "fp8" or config["weight_block_size"] != [BLOCK, BLOCK]:
        raise ValueError("not declared")
    wrong, weights = [], 0
    for name, (dtype, shape) in tensors.items():
        if dtype == "F8_E4M3":
            weights += 1
            scale = tensors.get(name + "_scale_inv")
            grid = [-(-shape[0] // BLOCK), -(-shape[1] // BLOCK)]
            if scale is None or scale[0] not in ("F32", "BF16", "F16") or scale[1] != grid:
                wrong.append(name)
        elif dtype == "F8_E5M2" or name.endswith((".weight_scale", ".input_scale", ".activation_scale")):
            wrong.append(name)
        elif name.endswith("_scale_inv"):
            weight = tensors.get(name.removesuffix("_scale_inv"))
            if weight is None or weight[0] != "F8_E4M3":
                wrong.append(name)
    index = folder / "model.safetensors.index.json"
    if index.exists() and json.loads(index.read_bytes())["weight_map"] != shard_of:
        wrong.append("index")
    if wrong:
        raise ValueError(wrong[:5])
    return weights


def verify_with_safe_open(folder: Path) -> int:
    """Loop over keys, shapes and dtypes of every shard with safetensors' own reader, then check."""
    from safetensors import safe_open

    tensors: dict[str, tuple[str, list[int]]] = {}
    shard_of: dict[str, str] = {}
    for shard in _shards(folder):
        with safe_open(shard, framework="np") as file:
            for name in file.keys():  # noqa: SIM118  # safe_open is not a mapping
                part = file.get_slice(name)
                if name in tensors:
                    raise ValueError(name)
                tensors[name] = (part.get_dtype(), part.get_shape())
                shard_of[name] = shard.name
    return _judge(tensors, shard_of, folder)


def verify_with_hub_metadata(folder: Path) -> int:
    """Read the metadata of a local checkpoint with the hub client, then check."""
    from huggingface_hub import get_local_safetensors_metadata

    metadata = get_local_safetensors_metadata(folder)
    tensors = {name: (each.dtype, list(each.shape)) for file in metadata.files_metadata.values() for name, each in file.tensors.items()}
    return _judge(tensors, dict(metadata.weight_map), folder)


def _shards(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.safetensors"))

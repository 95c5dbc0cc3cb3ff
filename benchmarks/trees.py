"""A 1.8 GB block-FP8 Llama with real bytes on disk, for measurements that must touch them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LAYERS, HIDDEN, INTERMEDIATE, HEADS, KEY_HEADS, HEAD, VOCABULARY, SHARDS = 14, 3072, 8192, 24, 8, 128, 32000, 3
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"],
    },
}
_BYTES = {"F8_E4M3": 1, "BF16": 2, "F32": 4}

Tensor = tuple[str, str, tuple[int, ...]]


def _tensors() -> Iterator[Tensor]:
    yield "model.embed_tokens.weight", "BF16", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", "BF16", (HIDDEN,)
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD, HIDDEN),
            ("self_attn.k_proj", KEY_HEADS * HEAD, HIDDEN),
            ("self_attn.v_proj", KEY_HEADS * HEAD, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            yield f"{prefix}{name}.weight", "F8_E4M3", (rows, columns)
            yield f"{prefix}{name}.weight_scale_inv", "F32", (-(-rows // 128), -(-columns // 128))
    yield "model.norm.weight", "BF16", (HIDDEN,)
    yield "lm_head.weight", "BF16", (VOCABULARY, HIDDEN)


def _size(tensor: Tensor) -> int:
    size = _BYTES[tensor[1]]
    for dimension in tensor[2]:
        size *= dimension
    return size


def write_llama(folder: Path) -> None:
    """Write the tree, if it is not there: three shards, an index, a configuration."""
    if folder.exists():
        return
    folder.mkdir(parents=True)
    tensors = list(_tensors())
    total = sum(map(_size, tensors))
    shards: list[list[Tensor]] = [[] for _ in range(SHARDS)]
    written = 0
    for tensor in tensors:
        shards[min(SHARDS - 1, written * SHARDS // total)].append(tensor)
        written += _size(tensor)
    weight_map = {}
    generator = np.random.default_rng(11)
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        weight_map.update({tensor[0]: name for tensor in shard})
        _write_shard(folder / name, shard, generator)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(CONFIG))


def _write_shard(path: Path, tensors: list[Tensor], generator: np.random.Generator) -> None:
    header, offset = {}, 0
    for tensor in tensors:
        name, dtype, shape = tensor
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + _size(tensor)]}
        offset += _size(tensor)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pool = generator.integers(0, 120, 1 << 24, dtype=np.uint8).tobytes()  # finite codes; as BF16 or F32, small numbers
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            left = _size(tensor)
            while left:
                left -= file.write(pool[: min(left, len(pool))])


def break_last_scale(folder: Path) -> None:
    """Make the scale of the last layer's down projection flat, [n] in place of [a, b]: transformers raises on it."""
    name = f"model.layers.{LAYERS - 1}.mlp.down_proj.weight_scale_inv"
    shard = folder / json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][name]
    with shard.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        rows, columns = header[name]["shape"]
        header[name]["shape"] = [rows * columns]
        text = json.dumps(header, separators=(",", ":")).encode()
        file.seek(8)
        file.write(text.ljust(length))


def evict(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

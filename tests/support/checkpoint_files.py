"""Writes safetensors files by hand, sparse and tiny on disk, independently of the product and of the safetensors library."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

#: Names to dtype and shape in elements, in the order in which the tensors lie in the payload.
Tensors: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]

#: Width in bits, written down a second time on purpose: a helper that took the product's table could not catch its faults.
BITS: Mapping[str, int] = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
}


def size_in_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the bytes that a tensor takes; sub-byte elements must fill whole bytes."""
    bits = BITS[dtype] * math.prod(shape)
    if bits % 8:
        raise ValueError(f"{dtype} {list(shape)} does not fill whole bytes")
    return bits // 8


def payload_size(tensors: Tensors) -> int:
    """Return the bytes of the payload that follows the header."""
    return sum(size_in_bytes(dtype, shape) for dtype, shape in tensors.values())


def header_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the JSON header with contiguous offsets, padded with spaces to a multiple of 8, without the length before it."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + size_in_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)


def file_bytes(header: bytes, payload: bytes = b"") -> bytes:
    """Return a whole file: 8 bytes of length, the header as it is given, the payload."""
    return len(header).to_bytes(8, "little") + header + payload


def write_raw(path: Path, header: bytes, payload_size: int) -> Path:
    """Write length, a header of any bytes, and a hole of `payload_size` bytes that takes no room on disk; return `path`."""
    path.write_bytes(file_bytes(header))
    with path.open("r+b") as file:
        file.truncate(8 + len(header) + payload_size)
    return path


def write_sparse(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    """Write a well-formed file whose payload is a hole of the true size; return `path`."""
    return write_raw(path, header_bytes(tensors, metadata), payload_size(tensors))


def write_index(path: Path, weight_map: Mapping[str, str]) -> Path:
    """Write an index file as libraries write it; return `path`."""
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": dict(weight_map)}, indent=2) + "\n", encoding="utf-8")
    return path


def shard_name(number: int, count: int, base: str = "model") -> str:
    """Return `model-00001-of-00002.safetensors`, or `model.safetensors` when there is one shard."""
    return f"{base}.safetensors" if count == 1 else f"{base}-{number:05}-of-{count:05}.safetensors"


def write_checkpoint(
    folder: Path,
    tensors: Tensors,
    *,
    config: Mapping[str, Any] | None = None,
    shards: int = 1,
    index: bool = True,
    placement: Mapping[str, int] | None = None,
    base: str = "model",
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint of sparse shards and return `folder`, which is created where it is absent.

    `placement` maps a tensor to its shard, 1 to `shards`; a tensor that it does not name goes to the shards in turn. The index is
    written when there is more than one shard and `index` is true; `config` becomes `config.json`, `metadata` stands in every header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[dict[str, tuple[str, tuple[int, ...]]]] = [{} for _ in range(shards)]
    for position, (name, geometry) in enumerate(tensors.items()):
        parts[(placement or {}).get(name, position % shards + 1) - 1][name] = geometry
    for number, part in enumerate(parts, start=1):
        write_sparse(folder / shard_name(number, shards, base), part, {"format": "pt", **(metadata or {})})
    if shards > 1 and index:
        weight_map = {name: shard_name(number, shards, base) for number, part in enumerate(parts, start=1) for name in part}
        write_index(folder / f"{base}.safetensors.index.json", weight_map)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder

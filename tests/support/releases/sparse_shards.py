"""Sparse checkpoint files of any apparent size: every header byte is real, every payload is a hole that takes no room on disk.

Only the standard library is imported, so that a demo and a benchmark can use this module as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

#: Name, dtype and shape in elements.
Tensor: TypeAlias = tuple[str, str, tuple[int, ...]]

_BYTES: Mapping[str, int] = {"U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "BF16": 2, "F16": 2, "F32": 4, "I64": 8}

#: The library's own order of these dtypes.
_ORDER = ("U8", "F8_E5M2", "F8_E4M3", "F16", "BF16", "F32", "I64")
PYTORCH: Mapping[str, str] = {"format": "pt"}


def size_in_bytes(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes in the payload."""
    _, dtype, shape = tensor
    return _BYTES[dtype] * math.prod(shape)


def write_shards(folder: Path, tensors: Sequence[Tensor], count: int, config: Mapping[str, Any], *, digits: int = 5) -> Path:
    """Write shards of about equal size in the order of the tensors, the index and the configuration.

    A shard ends where its share of the bytes is reached, which is most often between a weight and its scale: published trees do that too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    total = sum(map(size_in_bytes, tensors))
    for number, part in enumerate(split(tensors, count), start=1):
        name = f"model-{number:05}-of-{count:0{digits}}.safetensors"
        raw, payload = header(part)
        write_with_hole(folder / name, raw, payload)
        weight_map.update(dict.fromkeys((tensor for tensor, _, _ in part), name))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder


def split(tensors: Sequence[Tensor], count: int) -> Iterator[list[Tensor]]:
    """Yield exactly `count` parts; each but the last ends with the tensor that reaches its share of the total."""
    part: list[Tensor] = []
    total = sum(map(size_in_bytes, tensors))
    done, number = 0, 1
    for left, tensor in zip(range(len(tensors) - 1, -1, -1), tensors, strict=True):
        part.append(tensor)
        done += size_in_bytes(tensor)
        if number < count and (done * count >= number * total or left == count - number):
            yield part
            part, number = [], number + 1
    yield part


def header(tensors: Iterable[Tensor], metadata: Mapping[str, str] | None = PYTORCH) -> tuple[bytes, int]:
    """Return the length and the header, padded to a multiple of 8 as the library does, and the size of the payload."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    position = 0
    for tensor in tensors:
        name, dtype, shape = tensor
        end = position + size_in_bytes(tensor)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": (position, end)}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, position


def as_serialized(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors in the order in which the library writes them: the widest dtypes first, then by name."""
    return sorted(tensors, key=lambda tensor: (-_ORDER.index(tensor[1]), tensor[0]))


def write_with_hole(path: Path, header: bytes, payload: int) -> None:
    """Write the header and extend the file to its true size; the hole takes no room on disk."""
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + payload)

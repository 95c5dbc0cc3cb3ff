"""What is stated of a release in its true geometry, and how its files are written: sparse, so that no size is too large.

A release says where its geometry comes from and what an inspection must find; `listed` has them all, and the page of
releases is written from the same statements. Only the standard library is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.releases.sparse_shards import PYTORCH, Tensor, header, split, write_with_hole

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Account:
    """How many tensors of each kind there are; none is refused."""

    weights: int
    sidecars: int
    unquantized: int
    cache_scales: int = 0
    bookkeeping: int = 0

    @property
    def tensors(self) -> int:
        """Return the number of all tensors."""
        return self.weights + self.sidecars + self.unquantized + self.cache_scales + self.bookkeeping


@dataclass(frozen=True)
class Damage:
    """One tensor that another dtype or shape has taken, or that is missing, and the violation that must name it."""

    tensor: str
    becomes: tuple[str, tuple[int, ...]] | None
    code: str
    #: The object of the violation, where it is not the tensor itself.
    object: str = ""

    @property
    def named(self) -> str:
        """Return the object of the violation."""
        return self.object or self.tensor


@dataclass(frozen=True)
class Release:
    """A published checkpoint: its tensors and files, where they are known from, and what an inspection must find."""

    #: The name of its folder in tests, and its title on the page.
    name: str
    title: str
    tensors: Callable[[], Iterator[Tensor]]
    contract: str
    account: Account
    #: The bytes of all payloads; a number that is published where `published` says so.
    payload_bytes: int
    #: What is published of the geometry, and what is derived or inferred from it.
    published: str
    derived: str
    damage: Damage
    #: A part of each note, in order; there is no other note.
    notes: tuple[str, ...] = ()
    #: The names of its shards, in the order of the tensors.
    shards: tuple[str, ...] = ("model.safetensors",)
    #: The JSON files beside the weights, by name; a callable is asked for its content when the release is written.
    files: Mapping[str, Any] = field(default_factory=dict)
    metadata: Callable[[], Mapping[str, str] | None] = lambda: PYTORCH
    #: The published size of its only shard, where header and all come to it.
    file_bytes: int | None = None
    #: Further files of tensors in the folder, which are no part of the checkpoint.
    beside: Mapping[str, Callable[[], Iterator[Tensor]]] = field(default_factory=dict)


def numbered(count: int, *, first: int = 1, last: int | None = None, digits: int = 5) -> tuple[str, ...]:
    """Return `model-00001-of-00002.safetensors` and so on; `last` is the number after `of`, where it is not the count."""
    return tuple(f"model-{number:05}-of-{last or count:0{digits}}.safetensors" for number in range(first, first + count))


def write_release(release: Release, folder: Path) -> Path:
    """Write a release and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for shard, part in zip(release.shards, split(list(release.tensors()), len(release.shards)), strict=True):
        write_with_hole(folder / shard, *header(part, release.metadata()))
        weight_map.update(dict.fromkeys((name for name, _, _ in part), shard))
    for shard, tensors in release.beside.items():
        write_with_hole(folder / shard, *header(tensors()))
    if len(release.shards) > 1:
        _write_json(folder / INDEX, {"metadata": {"total_size": release.payload_bytes}, "weight_map": weight_map})
    for name, content in release.files.items():
        _write_json(folder / name, content() if callable(content) else content)
    return folder


def write_neighbour(release: Release, sound: Path, folder: Path) -> Path:
    """Write the neighbour of a release that has its damage: one shard, and links to all other files in `sound`; return `folder`."""
    damage, index = release.damage, sound / INDEX
    weight_map = json.loads(index.read_text("utf-8"))["weight_map"] if index.exists() else {}
    shard = weight_map.pop(damage.tensor, release.shards[0])
    folder.mkdir(parents=True, exist_ok=True)
    entries = _entries(sound / shard)
    metadata = entries.pop("__metadata__", None)
    tensors = ((name, entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items())
    write_with_hole(folder / shard, *header(_damaged(tensors, damage), metadata))
    if damage.becomes is None and weight_map:
        _write_json(folder / INDEX, {"weight_map": weight_map})
    for path in sound.iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


def _entries(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        entries: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return entries


def _damaged(tensors: Iterable[Tensor], damage: Damage) -> Iterator[Tensor]:
    for tensor in tensors:
        if tensor[0] != damage.tensor:
            yield tensor
        elif damage.becomes is not None:
            yield tensor[0], *damage.becomes


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")

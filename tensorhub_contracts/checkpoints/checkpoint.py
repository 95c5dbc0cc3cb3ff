"""A checkpoint as its headers describe it: every tensor of every shard, and what its configuration declares."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.checkpoints.header import Header
from tensorhub_contracts.readable import Readable


@attrs.frozen(slots=False, repr=False)
class Shard(Readable):
    """One file of a checkpoint: its name, its size and how much of it was read (8 + header_length bytes)."""

    name: str
    file_size: int
    header_length: int
    tensor_count: int
    metadata: Mapping[str, str]


@attrs.frozen(slots=False, repr=False, eq=False)
class Checkpoint(Readable):
    """What the headers and the configuration of a checkpoint say; no weight byte was read for it."""

    path: str
    component: str
    #: The header of each shard.
    headers: Mapping[str, Header]
    #: The shard of each tensor: the one that counts, where several hold it.
    shard_of: Mapping[str, str]
    declarations: tuple[DeclarationSource, ...]
    #: The content of `config.json`, or empty.
    config: Mapping[str, Any]
    index_name: str
    extra_files: tuple[str, ...]
    #: Tensors that lie in several shards, with all of them.
    held_twice: Mapping[str, tuple[str, ...]]
    #: Headers, their lengths and the JSON files.
    bytes_read: int
    #: Shards of multi-token prediction that the index does not list: they belong to the checkpoint all the same.
    unindexed: tuple[str, ...] = ()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The files of the checkpoint, in order."""
        return tuple(
            Shard(name, header.file_size, header.length, len(header.tensors), header.metadata) for name, header in self.headers.items()
        )

    @property
    def tensor_count(self) -> int:
        """How many tensors there are."""
        return len(self.shard_of)

    @property
    def payload_bytes(self) -> int:
        """The bytes of all tensors in all shards."""
        return sum(header.file_size - 8 - header.length for header in self.headers.values())

    @cached_property
    def tensors(self) -> Mapping[str, Geometry]:
        """Every tensor with its dtype and shape; put together when it is first asked for."""
        tensors: dict[str, Geometry] = {}
        for header in self.headers.values():
            tensors.update(zip(header.tensors, header.geometries, strict=True))
        for name in self.held_twice:
            header = self.headers[self.shard_of[name]]
            tensors[name] = dict(zip(header.tensors, header.geometries, strict=True))[name]
        return tensors

    @cached_property
    def headers_digest(self) -> str:
        """SHA-256 over each shard's name, size and header, in order: it identifies layout and geometry, not values."""
        import hashlib  # most inspections need no digest of the headers

        digest = hashlib.sha256()
        for name, header in self.headers.items():
            digest.update(f"{name}\0{header.file_size}\0{header.length}\0".encode("utf-8", "surrogatepass"))
            digest.update(header.raw)
        return "sha256:" + digest.hexdigest()

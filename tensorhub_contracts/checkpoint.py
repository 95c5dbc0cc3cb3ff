"""A checkpoint as its headers describe it: every tensor of every shard, and what its configuration declares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tensorhub_contracts.declaration_sources import DeclarationSource, read_declarations
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.header import Header, Source, read_header
from tensorhub_contracts.pipeline import component_folder
from tensorhub_contracts.regular_files import lies_there
from tensorhub_contracts.shard_index import NUMBERED, disagreements
from tensorhub_contracts.shard_set import ShardSet, find_shards
from tensorhub_contracts.tensor_entry import Geometry

#: Called after each header with how many have been read and how many there are.
Progress = Callable[[int, int], None]

#: Called with the tensors of each header as soon as it is read, before anything is known of the others.
Visit = Callable[[Iterable[tuple[str, Geometry]]], None]


class Shard(msgspec.Struct, frozen=True):
    """One file of a checkpoint: its name, its size and how much of it was read (8 + header_length bytes)."""

    name: str
    file_size: int
    header_length: int
    tensor_count: int
    metadata: Mapping[str, str]


class Checkpoint(msgspec.Struct, frozen=True, dict=True, eq=False):
    """What the headers and the configuration of a checkpoint say; no weight byte was read for it.

    `headers` maps a shard to its header, `shard_of` a tensor to its shard. `config` is `config.json`, or empty.
    `held_twice` maps a tensor that lies in several shards to all of them; `shard_of` has the one that counts.
    `bytes_read` counts headers, their lengths and the JSON files.
    """

    path: str
    component: str
    headers: Mapping[str, Header]
    shard_of: Mapping[str, str]
    declarations: tuple[DeclarationSource, ...]
    config: Mapping[str, Any]
    index_name: str
    extra_files: tuple[str, ...]
    held_twice: Mapping[str, tuple[str, ...]]
    bytes_read: int

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


def read_checkpoint(
    source: Source | Path, component: str = "", *, progress: Progress | None = None, visit: Visit | None = None
) -> Checkpoint:
    """Read the headers of a checkpoint and what declares its layout.

    `source` is a folder, a `.safetensors` file, an open binary file or the bytes of one file; `component` picks a
    sub-folder of a pipeline. Reads 8 + header length bytes of each shard and the JSON files, keeps no descriptor open
    and maps nothing. Raises `Refusal` with every violation of the container.
    """
    if not isinstance(source, str | os.PathLike):
        name = str(getattr(source, "name", "(bytes)"))
        if component:
            raise _no_components(name, component)
        header = read_header(source, name=name)
        _show(header, visit)
        return _assemble(name, "", ShardSet((name,)), {name: header}, (), {}, 0)
    path = Path(source)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise _not_there(path, str(error)) from error
    if not is_there:
        raise _not_there(path, "nothing at that path")
    if not is_folder:
        if component:
            raise _no_components(str(path), component)
        return _read_single_file(path, visit)
    folder = component_folder(path, component)
    shard_set = find_shards(folder)
    headers, violations, agreed = _read_headers(folder, shard_set, progress, visit)
    violations = [*shard_set.missing, *violations]
    try:
        declarations, config, size = read_declarations(folder)
    except Refusal as refusal:
        declarations, config, size = (), {}, 0
        violations += refusal.violations
    return _assemble(str(path), component, shard_set, headers, declarations, config, size, violations, agreed=agreed)


def _read_single_file(path: Path, visit: Visit | None) -> Checkpoint:
    """A file alone is a checkpoint if it is whole; the configuration that lies beside it declares its layout."""
    matched = NUMBERED.match(path.name)
    if matched and int(matched[3]) > 1:
        remedy = f"Point at the folder, {path.parent}."
        found = f"shard {int(matched[2])} of {int(matched[3])} alone"
        raise Refusal([Violation("shards-incomplete", path.name, "a whole checkpoint", found, remedy, str(path))])
    header = read_header(path)
    _show(header, visit)
    declarations, config, size = read_declarations(path.parent)
    return _assemble(str(path), "", ShardSet((path.name,)), {path.name: header}, declarations, config, size)


def _show(header: Header, visit: Visit | None) -> None:
    if visit is not None:
        visit(zip(header.tensors, header.geometries, strict=True))


def _read_headers(
    folder: Path, shard_set: ShardSet, progress: Progress | None, visit: Visit | None
) -> tuple[dict[str, Header], list[Violation], bool]:
    """Read every header; return them, what is wrong with them, and whether the index agrees with all of them.

    The index agrees if it puts every tensor of a header into that shard, and names as many tensors as there are.
    """
    headers: dict[str, Header] = {}
    violations: list[Violation] = []
    weight_map = shard_set.weight_map or {}
    agreed = True
    prefix = os.fspath(folder) + os.sep
    for number, shard in enumerate(shard_set.shards, 1):
        try:
            headers[shard] = header = read_header(prefix + shard, name=shard)
            agreed = agreed and set(map(weight_map.get, header.tensors)) <= {shard}
            _show(header, visit)
        except Refusal as refusal:
            violations += refusal.violations
        if progress is not None:
            progress(number, len(shard_set.shards))
    return headers, violations, agreed and len(weight_map) == sum(len(header.tensors) for header in headers.values())


def _assemble(
    path: str,
    component: str,
    shard_set: ShardSet,
    headers: Mapping[str, Header],
    declarations: tuple[DeclarationSource, ...],
    config: Mapping[str, Any],
    config_size: int,
    violations: Sequence[Violation] = (),
    *,
    agreed: bool = False,
) -> Checkpoint:
    """Put a checkpoint together; `agreed` says that index and headers were found to agree.

    Raises `Refusal` with `violations` and all that shards and index disagree on.
    """
    weight_map = shard_set.weight_map
    twice: dict[str, tuple[str, ...]] = {}
    disagreeing: list[Violation] = []
    shard_of: Mapping[str, str] = {}
    if weight_map is not None and agreed:
        shard_of = weight_map
    elif len(headers) == len(shard_set.shards) and not shard_set.missing:  # else what the unread shards hold is unknown
        twice = _held_twice(headers) if len(headers) > 1 else {}
        shard_of, disagreeing = _settle(headers, twice, shard_set)
    if violations or disagreeing:
        raise Refusal([*violations, *disagreeing])
    return Checkpoint(
        path=path,
        component=component,
        headers=headers,
        shard_of=shard_of,
        declarations=declarations,
        config=config,
        index_name=shard_set.index_name,
        extra_files=shard_set.extra,
        held_twice=twice,
        bytes_read=sum(8 + header.length for header in headers.values()) + shard_set.index_size + config_size,
    )


def _settle(
    headers: Mapping[str, Header], twice: Mapping[str, tuple[str, ...]], shard_set: ShardSet
) -> tuple[Mapping[str, str], list[Violation]]:
    """Return where each tensor lies, and what is wrong with that.

    The index decides on tensors that lie in two shards; without one they are refused.
    """
    shard_of = {tensor: shard for shard, header in headers.items() for tensor in header.tensors}
    weight_map = shard_set.weight_map
    if weight_map is None:
        return shard_of, [_twice_violation(tensor, holders) for tensor, holders in twice.items()]
    violations = disagreements(weight_map, shard_of, twice, name=shard_set.index_name)
    if not violations:
        shard_of.update((tensor, weight_map[tensor]) for tensor in twice)
    return shard_of, violations


def _held_twice(headers: Mapping[str, Header]) -> dict[str, tuple[str, ...]]:
    holders: dict[str, tuple[str, ...]] = {}
    for shard, header in headers.items():
        for tensor in header.tensors:
            holders[tensor] = (*holders.get(tensor, ()), shard)
    return {tensor: shards for tensor, shards in holders.items() if len(shards) > 1}


def _twice_violation(tensor: str, holders: tuple[str, ...]) -> Violation:
    remedy = "Add the index that says which shard counts, or remove the copy."
    return Violation("tensor-duplicate", tensor, "each tensor in one shard", f"it in {', '.join(holders)}", remedy)


def _not_there(path: Path, found: str) -> Refusal:
    if lies_there(path):
        found = f"a link to {os.readlink(path)}, which does not exist"
        return Refusal([Violation("file-broken-link", str(path), "a file or a folder", found, "Download the file again.")])
    return Refusal([Violation("checkpoint-not-found", str(path), "a folder or a .safetensors file", found, "Check the path.")])


def _no_components(name: str, component: str) -> Refusal:
    remedy = "Leave the component out, or point at the root of the pipeline."
    return Refusal([Violation("component-unknown", component, f"a component of {name}", "a single file, which has none", remedy)])

"""Reads a checkpoint: the headers of all its shards, and what its configuration declares."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.config_files import DeclarationSource, read_declarations
from tensorhub_contracts.checkpoints.files import exists_or_dangles
from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.checkpoints.header import Header, Source, read_header
from tensorhub_contracts.checkpoints.paths import folder_of, last_name, mode_of, plain_path
from tensorhub_contracts.checkpoints.pipeline import component_folder
from tensorhub_contracts.checkpoints.shard_index import NUMBERED, disagreements
from tensorhub_contracts.checkpoints.shards import ShardSet, find_shards
from tensorhub_contracts.errors import Refusal, Violation

#: Called after each header with how many have been read and how many there are.
Progress = Callable[[int, int], None]

#: Called with the tensors of each header as soon as it is read, before anything is known of the others.
Visit = Callable[[Iterable[tuple[str, Geometry]]], None]


def read_checkpoint(source: Source, component: str = "", *, progress: Progress | None = None, visit: Visit | None = None) -> Checkpoint:
    """Read the headers of a checkpoint and what declares its layout.

    `source` is a folder, a `.safetensors` file, an open binary file or the bytes of one file; `component` picks a
    sub-folder of a pipeline. Reads 8 + header length bytes of each shard and the JSON files, keeps no descriptor open
    and maps nothing. Raises `Refusal` with every violation of the container, and TypeError for a source of another kind.
    """
    if not isinstance(source, str | os.PathLike):
        name = str(getattr(source, "name", "(bytes)"))
        if component:
            raise _no_components(name, component)
        header = read_header(source, name=name)
        _show(header, visit)
        return _assemble(name, "", ShardSet((name,)), {name: header}, (), {}, 0)
    path = plain_path(source)
    try:
        mode = mode_of(path)
    except OSError as error:
        raise _not_there(path, str(error)) from error
    if not mode:
        raise _not_there(path, "nothing at that path")
    if not stat.S_ISDIR(mode):
        if component:
            raise _no_components(path, component)
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
    return _assemble(path, component, shard_set, headers, declarations, config, size, violations, agreed=agreed)


def _read_single_file(path: str, visit: Visit | None) -> Checkpoint:
    """A file alone is a checkpoint if it is whole; the configuration that lies beside it declares its layout."""
    name = last_name(path)
    matched = NUMBERED.match(name)
    if matched and int(matched[3]) > 1:
        remedy = f"Point at the folder, {folder_of(path)}."
        found = f"shard {int(matched[2])} of {int(matched[3])} alone"
        raise Refusal(
            [Violation(code="shards-incomplete", object=name, expected="a whole checkpoint", found=found, remedy=remedy, shard=path)]
        )
    header = read_header(path)
    _show(header, visit)
    declarations, config, size = read_declarations(folder_of(path))
    return _assemble(path, "", ShardSet((name,)), {name: header}, declarations, config, size)


def _show(header: Header, visit: Visit | None) -> None:
    if visit is not None:
        visit(zip(header.tensors, header.geometries, strict=True))


def _read_headers(
    folder: str, shard_set: ShardSet, progress: Progress | None, visit: Visit | None
) -> tuple[dict[str, Header], list[Violation], bool]:
    """Read every header; return them, what is wrong with them, and whether the index agrees with all of them.

    The index agrees if it puts every tensor of a header into that shard, and names as many tensors as there are.
    """
    headers: dict[str, Header] = {}
    violations: list[Violation] = []
    weight_map = shard_set.weight_map or {}
    agreed = True
    prefix = folder + os.sep
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
    return Violation(code="tensor-duplicate", object=tensor, expected="each tensor in one shard", found=f"it in {', '.join(holders)}")


def _not_there(path: str, found: str) -> Refusal:
    if exists_or_dangles(path):
        found = f"a link to {os.readlink(path)}, which does not exist"
        return Refusal([Violation(code="file-broken-link", object=path, expected="a file or a folder", found=found)])
    return Refusal(
        [
            Violation(
                code="checkpoint-not-found",
                object=path,
                expected="a folder or a .safetensors file",
                found=found,
            )
        ]
    )


def _no_components(name: str, component: str) -> Refusal:
    remedy = "Leave the component out, or point at the root of the pipeline."
    return Refusal(
        [
            Violation(
                code="component-unknown",
                object=component,
                expected=f"a component of {name}",
                found="a single file, which has none",
                remedy=remedy,
            )
        ]
    )

"""Reads a checkpoint: the headers of all its shards, and what its configuration declares."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.config_files import DeclarationSource, declared_in_metadata, read_declarations
from tensorhub_contracts.checkpoints.files import exists_or_dangles, folder_unreadable, require_finished
from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.checkpoints.header import Header, Source, read_header
from tensorhub_contracts.checkpoints.header_metadata import declared_in_headers
from tensorhub_contracts.checkpoints.paths import folder_of, last_name, mode_of, plain_path
from tensorhub_contracts.checkpoints.pipeline import component_folder
from tensorhub_contracts.checkpoints.shard_index import NUMBERED, disagreements
from tensorhub_contracts.checkpoints.shards import ShardSet, find_shards
from tensorhub_contracts.errors import MOST_VIOLATIONS, Refusal, Violation

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
        raise folder_unreadable(folder_of(path), error) from error
    if not mode:
        raise _not_there(path, "nothing at that path", os.fspath(source))
    if not stat.S_ISDIR(mode):
        if component:
            raise _no_components(path, component)
        return _read_single_file(path, visit)
    require_finished(path)
    folder = component_folder(path, component)
    if folder != path:
        require_finished(folder)
    shard_set = find_shards(folder)
    headers, violations, unlisted, agreed = _read_headers(folder, shard_set, progress, visit)
    violations = [*shard_set.missing, *violations]
    try:
        declarations, config, size = read_declarations(folder)
    except Refusal as refusal:
        declarations, config, size = (), {}, 0
        violations += refusal.violations
    return _assemble(path, component, shard_set, headers, declarations, config, size, violations, unlisted=unlisted, agreed=agreed)


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
    require_finished(folder_of(path))
    header = read_header(path)
    _show(header, visit)
    declarations, config, size = read_declarations(folder_of(path))
    return _assemble(path, "", ShardSet((name,)), {name: header}, declarations, config, size)


def _show(header: Header, visit: Visit | None) -> None:
    if visit is not None:
        visit(zip(header.tensors, header.geometries, strict=True))


def _read_headers(
    folder: str, shard_set: ShardSet, progress: Progress | None, visit: Visit | None
) -> tuple[dict[str, Header], list[Violation], int, bool]:
    """Read every header; return them, what is wrong with them, how much more is, and whether the index agrees with all of them.

    The index agrees if it puts every tensor of a header into that shard, and names as many tensors as there are. It says
    nothing of shards beside it: they must hold other tensors.
    """
    headers: dict[str, Header] = {}
    violations: list[Violation] = []
    unlisted = 0
    weight_map = shard_set.weight_map or {}
    agreed = True
    prefix = folder + os.sep
    for number, shard in enumerate(shard_set.shards, 1):
        try:
            headers[shard] = header = read_header(prefix + shard, name=shard)
            listed = {None} if shard in shard_set.beside else {shard}
            agreed = agreed and set(map(weight_map.get, header.tensors)) <= listed
            _show(header, visit)
        except Refusal as refusal:
            agreed = False
            if len(violations) < MOST_VIOLATIONS:
                violations += refusal.violations
            else:
                unlisted += len(refusal.violations)
        if progress is not None:
            progress(number, len(shard_set.shards))
    indexed = sum(len(header.tensors) for shard, header in headers.items() if shard not in shard_set.beside)
    return headers, violations, unlisted, agreed and len(weight_map) == indexed


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
    unlisted: int = 0,
    agreed: bool = False,
) -> Checkpoint:
    """Put a checkpoint together; `agreed` says that index and headers were found to agree.

    Raises `Refusal` with `violations` and all that shards and index disagree on.
    """
    weight_map = shard_set.weight_map
    twice: dict[str, tuple[str, ...]] = {}
    disagreeing: list[Violation] = []
    shard_of: Mapping[str, str] = {}
    if weight_map is not None and agreed and len(shard_set.beside) <= 1:
        shard_of = {**weight_map, **_tensors_of(shard_set.beside, headers)} if shard_set.beside else weight_map
    elif len(headers) == len(shard_set.shards) and not shard_set.missing:  # else what the unread shards hold is unknown
        twice = _held_twice(headers) if len(headers) > 1 else {}
        shard_of, disagreeing = _settle(headers, twice, shard_set)
    try:
        declarations = (*declarations, *declared_in_headers(headers))
    except Refusal as refusal:
        violations = [*violations, *refusal.violations]
    if shard_set.forgotten and not _holds_all(headers, shard_set):
        violations = [*violations, *shard_set.forgotten]
    if violations or disagreeing:
        raise Refusal([*violations, *disagreeing], unlisted=unlisted)
    return Checkpoint(
        path=path,
        component=component,
        headers=headers,
        shard_of=shard_of,
        declarations=(*declarations, *declared_in_metadata({name: header.metadata for name, header in headers.items()})),
        config=config,
        index_name=shard_set.index_name,
        extra_files=shard_set.extra,
        held_twice=twice,
        unindexed=shard_set.beside if weight_map is not None else (),
        bytes_read=sum(8 + header.length for header in headers.values()) + shard_set.index_size + config_size,
    )


def _holds_all(headers: Mapping[str, Header], shard_set: ShardSet) -> bool:
    """Whether the shards that an index names hold as many bytes as it says there are.

    MiniMax-M2.7 numbers 125 shards to 130: nothing is absent, and the numbers alone do not say so.
    """
    held = (header.file_size - 8 - header.length for shard, header in headers.items() if shard not in shard_set.beside)
    return shard_set.stated_size == sum(held)


def _settle(
    headers: Mapping[str, Header], twice: Mapping[str, tuple[str, ...]], shard_set: ShardSet
) -> tuple[Mapping[str, str], list[Violation]]:
    """Return where each tensor lies, and what is wrong with that.

    The index decides on tensors that lie in two of its shards; without one, or in a shard beside it, they are refused.
    """
    shard_of = _tensors_of(headers, headers)
    weight_map, beside = shard_set.weight_map, frozenset(shard_set.beside)
    if weight_map is None:
        return shard_of, [_twice_violation(tensor, holders) for tensor, holders in twice.items()]
    violations = [_twice_violation(tensor, holders) for tensor, holders in twice.items() if not beside.isdisjoint(holders)]
    listed = {**_tensors_of(beside, headers), **weight_map}
    violations += disagreements(listed, shard_of, twice, name=shard_set.index_name)
    if not violations:
        shard_of.update((tensor, weight_map[tensor]) for tensor in twice)
    return shard_of, violations


def _tensors_of(shards: Iterable[str], headers: Mapping[str, Header]) -> dict[str, str]:
    return {tensor: shard for shard in shards for tensor in headers[shard].tensors}


def _held_twice(headers: Mapping[str, Header]) -> dict[str, tuple[str, ...]]:
    holders: dict[str, tuple[str, ...]] = {}
    for shard, header in headers.items():
        for tensor in header.tensors:
            holders[tensor] = (*holders.get(tensor, ()), shard)
    return {tensor: shards for tensor, shards in holders.items() if len(shards) > 1}


def _twice_violation(tensor: str, holders: tuple[str, ...]) -> Violation:
    return Violation(code="tensor-duplicate", object=tensor, expected="each tensor in one shard", found=f"it in {', '.join(holders)}")


def _not_there(path: str, found: str, given: str = "") -> Refusal:
    """Return the refusal for a path that leads nowhere; `given` is how the caller wrote it."""
    from tensorhub_contracts.checkpoints.unfinished import with_unfinished  # only for paths that lead nowhere
    from tensorhub_contracts.checkpoints.wrong_places import nothing_at

    if exists_or_dangles(path) and os.path.islink(path):
        found = f"a link to {os.readlink(path)}, which does not exist"
        violation = Violation(code="file-broken-link", object=path, expected="a file or a folder", found=found)
    else:
        looks_like, remedy = nothing_at(given)
        violation = Violation(
            code="checkpoint-not-found",
            object=given if looks_like else path,
            expected="a folder or a .safetensors file",
            found=f"{found}; it looks like {looks_like}" if looks_like else found,
            remedy=remedy,
        )
    return Refusal([with_unfinished(violation, folder_of(path), of=last_name(path))])


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

"""Finds which files of a folder are the checkpoint: by its index, as numbered shards, or as a single file.

Files named `mtp*.safetensors` beside one of these belong to it: multi-token prediction modules that were written by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import attrs

from tensorhub_contracts.checkpoints.files import INDEX_SIZE_LIMIT, exists_or_dangles, list_folder, read_json_file
from tensorhub_contracts.checkpoints.paths import inside, mode_of
from tensorhub_contracts.checkpoints.shard_index import NUMBERED, forgotten_numbers, missing_numbers, parse_index, stated_size
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.readable import Readable

#: The base names that libraries look for first.
CANONICAL: Final = ("model", "diffusion_pytorch_model")

_INDEX = ".safetensors.index.json"
_PREDICTION: Final = "mtp"


@attrs.frozen(slots=False, repr=False)
class ShardSet(Readable):
    """The shards that make a checkpoint, in order; `weight_map` is the index, if there is one.

    `beside` are those of the shards that hold multi-token prediction and that no index lists. `extra` names the safetensors
    files and indexes that lie in the folder and are not part of it: they are reported and never read. `missing` has a
    violation for each shard that the index names and that is not there.
    """

    shards: tuple[str, ...]
    index_name: str = ""
    weight_map: Mapping[str, str] | None = None
    extra: tuple[str, ...] = ()
    index_size: int = 0
    missing: tuple[Violation, ...] = ()
    #: What the numbers of the shards say is absent and the index does not name, and the bytes that the index says there are.
    forgotten: tuple[Violation, ...] = ()
    stated_size: int | None = None
    beside: tuple[str, ...] = ()


def find_shards(folder: str) -> ShardSet:
    """Return the shards of the checkpoint in `folder`, or raise `Refusal` with every reason why there is none."""
    names = list_folder(folder)
    indexes = [name for name in names if name.endswith(_INDEX)]
    files = [name for name in names if name.endswith(".safetensors")]
    predicting = _predicting(files)
    own = [name for name in indexes if not (predicting and name.startswith(_PREDICTION))]
    index = _preferred(own, _INDEX)
    if index:
        return _by_index(folder, index, indexes, files)
    if len(own) > 1:
        raise _ambiguous(folder, own)
    if not files:
        raise _no_weights(folder, names)
    files = [name for name in files if name not in predicting]
    numbered = {name: matched for name in files if (matched := NUMBERED.match(name))}
    single = [name for name in files if name not in numbered]
    if not numbered:
        chosen = _preferred(single, ".safetensors")
        if not chosen:
            raise _ambiguous(folder, single)
        extra = tuple(name for name in (*indexes, *single) if name != chosen)
        return ShardSet((chosen, *predicting), extra=extra, beside=_whole(folder, predicting))
    families = {(matched[1], int(matched[3])) for matched in numbered.values()}
    if len(families) > 1 or any(f"{base}.safetensors" in single for base in (*CANONICAL, *(each[0] for each in families))):
        raise _ambiguous(folder, files)
    return ShardSet((*_whole(folder, tuple(numbered)), *predicting), extra=(*indexes, *single), beside=_whole(folder, predicting))


def _predicting(files: list[str]) -> tuple[str, ...]:
    """Return the files of multi-token prediction, if there are others beside them."""
    found = tuple(name for name in files if name.startswith(_PREDICTION))
    return found if len(found) < len(files) else ()


def _whole(folder: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of shards. Raises `Refusal` if those that are numbered are not all there."""
    families: dict[tuple[str, int], list[int]] = {}
    for name in names:
        if matched := NUMBERED.match(name):
            families.setdefault((matched[1], int(matched[3])), []).append(int(matched[2]))
    for (base, count), numbers in families.items():
        absent = missing_numbers(set(numbers), count)
        if absent or len(set(numbers)) != len(numbers) or len(numbers) != count:
            violation = Violation(
                code="shards-incomplete",
                object=f"{base}-*-of-{count}",
                expected=f"{count} numbered shards",
                found=f"number {absent} missing" if absent else f"{len(numbers)} files",
                remedy="Download the missing shards; an index file would prove which tensors they hold.",
                shard=folder,
            )
            raise Refusal([_with_unfinished(violation, folder)])
    return names


def _by_index(folder: str, index: str, indexes: list[str], files: list[str]) -> ShardSet:
    text = read_json_file(inside(folder, index), limit=INDEX_SIZE_LIMIT)
    weight_map, named = parse_index(text, name=index, files=files)
    unreached = [shard for shard in named if shard not in files or not _leads_somewhere(inside(folder, shard))]
    missing = tuple(_missing(folder, shard, index) for shard in unreached)
    beside = _whole(folder, tuple(name for name in _predicting(files) if name not in named))
    extra = tuple(name for name in (*indexes, *files) if name not in (index, *named, *beside))
    reached = [shard for shard in named if shard not in unreached]
    forgotten = tuple(forgotten_numbers(named, index))
    if forgotten and any(NUMBERED.match(name) for name in extra):
        raise Refusal(forgotten)
    size = stated_size(text) if forgotten else None
    return ShardSet((*reached, *beside), index, weight_map, extra, len(text), missing, forgotten, size, beside)


def _leads_somewhere(path: str) -> bool:
    try:
        return mode_of(path) != 0
    except OSError:  # something lies there, and reading it says what is wrong
        return True


def _missing(folder: str, shard: str, index: str) -> Violation:
    path = inside(folder, shard)
    code, found = "index-shard-missing", "nothing at that path"
    if exists_or_dangles(path) and os.path.islink(path):
        code, found = "file-broken-link", f"a link to {os.readlink(path)}, which does not exist"
    return _with_unfinished(Violation(code=code, object=shard, expected=f"the shard that {index} names", found=found, shard=index), folder)


def _preferred(names: list[str], ending: str) -> str:
    """Return the one name that counts: a canonical one, else the only one, else none."""
    canonical = [base + ending for base in CANONICAL if base + ending in names]
    if len(canonical) == 1:
        return canonical[0]
    return names[0] if len(names) == 1 else ""


def _ambiguous(folder: str, names: list[str]) -> Refusal:
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return Refusal(
        [
            Violation(
                code="checkpoint-ambiguous",
                object=folder,
                expected="one checkpoint: an index, numbered shards or a single file",
                found=listed,
            )
        ]
    )


def _no_weights(folder: str, names: list[str]) -> Refusal:
    from tensorhub_contracts.checkpoints.file_kinds import kind_by_name, remedies  # only for folders without weights
    from tensorhub_contracts.checkpoints.wrong_places import holds_none

    elsewhere = False
    others = {name: kind for name in names if (kind := kind_by_name(name)) is not None}
    if others:
        found = f"only {', '.join(list(others)[:5])}; files of these kinds are never opened"
        remedy = remedies(others.values())
    else:
        found, remedy, elsewhere = holds_none(folder, names)
    violation = Violation(
        code="checkpoint-without-weights",
        object=folder,
        expected="a checkpoint in safetensors files",
        found=found or "no .safetensors file",
        remedy=remedy or "Point at the folder that holds the .safetensors files.",
    )
    return Refusal([violation if elsewhere else _with_unfinished(violation, folder)])


def _with_unfinished(violation: Violation, folder: str) -> Violation:
    from tensorhub_contracts.checkpoints.unfinished import with_unfinished  # only where something is missing

    return with_unfinished(violation, folder)

"""Finds which files of a folder are the checkpoint: by its index, as numbered shards, or as a single file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.shard_index import NUMBERED, missing_numbers, parse_index

#: The base names that libraries look for first.
CANONICAL: Final = ("model", "diffusion_pytorch_model")

_NOT_SAFETENSORS: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf", ".msgpack", ".h5", ".onnx")
_INDEX = ".safetensors.index.json"
_JSON_LIMIT: Final = 256 * 1024 * 1024


class ShardSet(msgspec.Struct, frozen=True):
    """The shards that make a checkpoint, in order; `weight_map` is the index, if there is one.

    `extra` names the safetensors files and indexes that lie in the folder and are not part of it: they are reported
    and never read.
    """

    shards: tuple[str, ...]
    index_name: str = ""
    weight_map: Mapping[str, str] | None = None
    extra: tuple[str, ...] = ()
    index_size: int = 0


def find_shards(folder: Path) -> ShardSet:
    """Return the shards of the checkpoint in `folder`, or raise `Refusal` with every reason why there is none."""
    names = sorted(os.listdir(folder))
    indexes = [name for name in names if name.endswith(_INDEX)]
    files = [name for name in names if name.endswith(".safetensors")]
    index = _preferred(indexes, _INDEX)
    if index:
        return _by_index(folder, index, indexes, files)
    if len(indexes) > 1:
        raise _ambiguous(folder, indexes)
    if not files:
        raise _no_weights(folder, names)
    numbered = {name: matched for name in files if (matched := NUMBERED.match(name))}
    single = [name for name in files if name not in numbered]
    if not numbered:
        chosen = _preferred(single, ".safetensors")
        if not chosen:
            raise _ambiguous(folder, single)
        return ShardSet((chosen,), extra=tuple(name for name in single if name != chosen))
    families = {(matched[1], int(matched[3])) for matched in numbered.values()}
    if len(families) > 1 or any(f"{base}.safetensors" in single for base in (*CANONICAL, *(each[0] for each in families))):
        raise _ambiguous(folder, files)
    ((base, count),) = families
    numbers = {int(matched[2]) for matched in numbered.values()}
    absent = missing_numbers(numbers, count)
    if absent or len(numbers) != len(numbered) or len(numbers) != count:
        found = f"number {absent} missing" if absent else f"{len(numbered)} files"
        remedy = "Download the missing shards; an index file would prove which tensors they hold."
        raise Refusal([Violation("shards-incomplete", f"{base}-*-of-{count}", f"{count} numbered shards", found, remedy, str(folder))])
    return ShardSet(tuple(numbered), extra=tuple(single))


def read_json_file(path: Path) -> bytes:
    """Return the bytes of a JSON file, bounded; raise `Refusal` if it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_JSON_LIMIT + 1)
    except OSError as error:
        code = "file-broken-link" if path.is_symlink() and not path.exists() else "file-unreadable"
        remedy = "Check the file and its permissions, or download it again."
        raise Refusal([Violation(code, path.name, "a readable file", error.strerror or str(error), remedy, str(path))]) from error
    if len(text) > _JSON_LIMIT:
        remedy = "This is not the file that its name says; download it again."
        raise Refusal([Violation("file-unreadable", path.name, f"at most {_JSON_LIMIT:,} bytes of JSON", "more", remedy, str(path))])
    return text


def _by_index(folder: Path, index: str, indexes: list[str], files: list[str]) -> ShardSet:
    text = read_json_file(folder / index)
    weight_map = parse_index(text, name=index, files=files)
    shards = tuple(sorted(set(weight_map.values())))
    missing = [
        Violation(
            code="index-shard-missing" if not (folder / shard).is_symlink() else "file-broken-link",
            object=shard,
            expected=f"the shard that {index} names",
            found="nothing at that path"
            if not (folder / shard).is_symlink()
            else f"a link to {os.readlink(folder / shard)}, which does not exist",
            remedy="Download the missing shard.",
            shard=index,
        )
        for shard in shards
        if shard not in files or not (folder / shard).exists()
    ]
    if missing:
        raise Refusal(missing)
    extra = tuple(name for name in (*indexes, *files) if name != index and name not in shards)
    return ShardSet(shards, index, weight_map, extra, len(text))


def _preferred(names: list[str], ending: str) -> str:
    """Return the one name that counts: a canonical one, else the only one, else none."""
    canonical = [base + ending for base in CANONICAL if base + ending in names]
    if len(canonical) == 1:
        return canonical[0]
    return names[0] if len(names) == 1 else ""


def _ambiguous(folder: Path, names: list[str]) -> Refusal:
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    remedy = "Name the one file that you mean, or keep one checkpoint in a folder."
    return Refusal(
        [Violation("checkpoint-ambiguous", str(folder), "one checkpoint: an index, numbered shards or a single file", listed, remedy)]
    )


def _no_weights(folder: Path, names: list[str]) -> Refusal:
    others = [name for name in names if name.endswith(_NOT_SAFETENSORS)]
    remedy = "Point at the folder that holds the .safetensors files."
    if others:
        found = f"only {', '.join(others[:5])}; files of these kinds are never opened"
        remedy = "Convert the weights to safetensors where they were made: a pickle can run code when it is opened."
    elif "snapshots" in names:
        revisions = sorted(path.name for path in (folder / "snapshots").iterdir())
        found = f"a hub cache with the snapshots {', '.join(revisions[:5])}"
        remedy = f"Point at a snapshot, for example {folder / 'snapshots' / revisions[0] if revisions else folder}."
    else:
        found = "no .safetensors file"
    return Refusal([Violation("checkpoint-without-weights", str(folder), "a checkpoint in safetensors files", found, remedy)])

"""Says what a path without a checkpoint is: nothing, the name of a repository, a hub's cache, a folder of checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from tensorhub_contracts.checkpoints.paths import inside, is_folder, plain_path

#: Whoever made a path of a URL left one slash of two.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_LOCAL: Final = "this tool reads local folders and asks no network"
_NAMED: Final = 5
_LOOKED_AT: Final = 1_000


def nothing_at(source: str) -> tuple[str, str]:
    """Return, for a path where nothing lies, what it looks like and what to do; both are empty if it looks like a path.

    A URL keeps the slashes that it has. `owner/name` looks like a repository of a hub, unless there is a folder `owner`.
    """
    if _SCHEME.match(source):
        return f"a URL, and {_LOCAL}", "Download it, and point at the folder."
    owner = source.partition("/")[0]
    if _REPOSITORY.fullmatch(source) and not source.endswith(".safetensors") and not os.path.lexists(owner):
        remedy = f"Check the path, or download the repository (`hf download {source}`) and point at the folder that this prints."
        return f"the name of a repository on a hub, and {_LOCAL}", remedy
    return "", ""


def holds_none(folder: str, names: list[str]) -> tuple[str, str, bool]:
    """Return, for a folder with these names and no weights, what it is, what to do, and whether there are weights elsewhere.

    The words are empty if nothing is known. A hub's cache of one repository and the cache of all of them name their snapshots,
    none of which is taken by itself.
    """
    if "snapshots" in names:
        snapshots = _snapshots(folder)
        listed = ", ".join(path.rpartition(os.sep)[2] for path in snapshots[:_NAMED])
        if not snapshots:
            return "a hub cache without a snapshot", "Download a snapshot.", False
        return f"a hub cache with the snapshots {listed}", f"Point at a snapshot, for example {snapshots[0]}.", True
    cached = [name for name in names if name.startswith("models--")]
    if cached:
        found = [path for name in cached[:_LOOKED_AT] for path in _snapshots(inside(folder, name))]
        listed = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else "")
        words = f"the cache of a hub with {len(cached):,} model{'' if len(cached) == 1 else 's'}"
        if not found:
            return f"{words} and no snapshot", "Download a snapshot.", False
        return f"{words} and the snapshots {listed}", f"Point at a snapshot, for example {found[0]}.", True
    below = list(_checkpoints_below(folder, names))
    if below:
        listed = ", ".join(below[:_NAMED]) + (f" and {len(below) - _NAMED:,} more" if len(below) > _NAMED else "")
        words = f"no .safetensors file; folders in it hold some: {listed}"
        return words, f"Point at each of them by itself, for example {inside(folder, below[0])}.", True
    return "", "", False


def _snapshots(folder: str) -> list[str]:
    """Return the paths of the snapshots of one cached repository."""
    where = inside(folder, "snapshots")
    return [inside(where, name) for name in _folders(where)]


def _checkpoints_below(folder: str, names: list[str]) -> Iterator[str]:
    for name in names[:_LOOKED_AT]:
        path = inside(folder, name)
        try:
            if is_folder(path) and any(each.endswith(".safetensors") for each in os.listdir(path)):
                yield name
        except OSError:  # a folder that may not be entered says nothing
            continue


def _folders(where: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(where) if is_folder(inside(where, name)))
    except OSError:
        return []


def words_for_nothing_at(source: str | os.PathLike[str]) -> str:
    """Return the message for a path where nothing lies, for a command line."""
    text = os.fspath(source)
    looks_like, remedy = nothing_at(text)
    if not looks_like:
        return f"there is nothing at {plain_path(text)}"
    return f"there is nothing at {text}, which looks like {looks_like}. {remedy}"

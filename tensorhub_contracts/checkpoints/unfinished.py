"""Downloads that did not end: what their tools leave beside a file, so that a refusal can say why something is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import attrs

from tensorhub_contracts.checkpoints.paths import folder_of, inside, last_name
from tensorhub_contracts.errors import Violation

#: Of huggingface_hub, of wget, curl and Firefox, of aria2, and of Chromium.
_ENDINGS: Final = (".incomplete", ".part", ".aria2", ".crdownload")
_LOCAL_DOWNLOADS: Final = os.path.join(".cache", "huggingface", "download")
#: How far above a file the `snapshots` of a hub cache may lie: a component is in a folder of its snapshot.
_DEPTH: Final = 3
_NAMED: Final = 3

_REMEDY = "Finish the download: run the command that began it again. What was downloaded is kept."


def with_unfinished(violation: Violation, folder: str, *, of: str = "") -> Violation:
    """Return the violation, and if an unfinished download lies beside what `folder` holds, with that and what to do about it.

    With `of`, only downloads of a file of that name count: a folder that is no checkpoint may hold anyone's.
    """
    found = sorted({path for path in _unfinished(folder) if last_name(path).startswith(of)})
    if not found:
        return violation
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    words = f"{violation.found}; beside it lies an unfinished download: {', '.join(found[:_NAMED])}{more}"
    return attrs.evolve(violation, found=words, remedy=_REMEDY)


def _unfinished(folder: str) -> Iterator[str]:
    """Yield the paths of what downloads left: in the folder, in the cache that a local folder has, in the blobs of a hub cache."""
    yield from _in(folder)
    above = folder_of(folder)
    yield from _in(inside(folder, _LOCAL_DOWNLOADS))
    yield from _in(inside(inside(above, _LOCAL_DOWNLOADS), last_name(folder)))
    yield from _in(inside(folder, "blobs"))
    step = folder
    for _ in range(_DEPTH):
        step = folder_of(step)
        if last_name(step) == "snapshots":
            yield from _in(inside(folder_of(step), "blobs"))
            return


def _in(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):  # it is not there, or may not be listed: then nothing is known
        return
    yield from (inside(folder, name) for name in names if name.endswith(_ENDINGS))

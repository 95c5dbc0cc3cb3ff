"""The folder of the compile cache: where it is, how it stands, and its bound in bytes."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import attrs

from tensorhub_cuda.nvrtc.cubin import UNFINISHED, is_trusted, read_cubin_file
from tensorhub_cuda.nvrtc.variables import variable

KERNEL_CACHE: Final = "TENSOR_CONTRACTS_KERNEL_CACHE"

#: All files together; a release's kernels for one architecture take less than a thousandth of it.
BOUND_BYTES: Final = 256 << 20

#: A file that was being written so long ago was left by a process that was killed.
_STALE_SECONDS: Final = 3600

#: What the cache's own files are called, whole and while they are written; nothing else in the folder is touched.
_CUBIN_NAME: Final = re.compile(r"[0-9a-f]{64}\.nvrtc-[0-9]+(\.[0-9]+)*\.cubin")
_UNFINISHED_NAME: Final = re.compile(rf"{_CUBIN_NAME.pattern}\.[a-z0-9_]+{re.escape(UNFINISHED)}")

FolderState = Literal["ready", "read-only", "not made yet", "unusable"]


@attrs.frozen
class CacheFolder:
    """Where cubins are kept."""

    #: The folder, or None if there is none.
    path: Path | None
    #: The environment variable that names it, or "default".
    chosen_by: str
    #: Why there is no path; empty if there is one.
    unusable: str = ""


@attrs.frozen
class CacheState:
    """The cache's folder as it is now."""

    #: Its path; empty if there is none.
    folder: str
    #: The environment variable that names it, or "default".
    chosen_by: str
    #: Whether new cubins can be kept in it.
    state: FolderState
    #: Why none can be; empty if they can.
    reason: str
    #: Number of cubins in it.
    files: int
    #: Bytes of these cubins together.
    size: int
    #: Bytes above which the least recently used ones are removed.
    bound: int


def cache_folder() -> CacheFolder:
    """Return the folder that cubins are kept in: TENSOR_CONTRACTS_KERNEL_CACHE, or tensorhub/kernels in the user's cache folder."""
    chosen = variable(KERNEL_CACHE)
    if chosen:
        return CacheFolder(Path(chosen).absolute(), KERNEL_CACHE)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if caches and Path(caches).is_absolute():  # the specification has relative ones ignored
        return CacheFolder(Path(caches, "tensorhub", "kernels"), "XDG_CACHE_HOME")
    try:
        home = Path.home()
    except RuntimeError as error:  # a container's user without an entry and without HOME
        return CacheFolder(None, "default", f"{error} Set {KERNEL_CACHE} to a folder.")
    return CacheFolder(home / ".cache" / "tensorhub" / "kernels", "default")


def cache_state() -> CacheState:
    """Return how the cache's folder stands, without making it."""
    chosen = cache_folder()
    if chosen.path is None:
        return CacheState("", chosen.chosen_by, "unusable", chosen.unusable, 0, 0, BOUND_BYTES)
    state, reason = _state_of(chosen.path)
    sizes = [status.st_size for _, status in _files(chosen.path, _CUBIN_NAME)]
    return CacheState(str(chosen.path), chosen.chosen_by, state, reason, len(sizes), sum(sizes), BOUND_BYTES)


def _state_of(folder: Path) -> tuple[FolderState, str]:
    """Return the state of a folder, and for a state that keeps no new file, why."""
    in_memory = "kernels that it does not hold are compiled again in every process"
    if fault := folder_fault(folder):
        return "unusable", f"{fault}: {in_memory}"
    if folder.is_dir():
        if not os.access(folder, os.R_OK | os.X_OK):
            return "unusable", f"this user may not read it: {in_memory}"
        return ("ready", "") if os.access(folder, os.W_OK) else ("read-only", in_memory)
    above = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return "not made yet", ""
    return "unusable", f"it cannot be made in {above}: {in_memory}"


def folder_fault(folder: Path) -> str:
    """Return why no cubin is taken from a folder that is there, nor put into it: others may write there; empty if all is well."""
    try:
        status = folder.stat()
    except OSError:
        return ""  # there is none, or reading it says what is wrong
    if stat.S_ISDIR(status.st_mode) and not is_trusted(status):
        who = "every user may write into it" if status.st_mode & stat.S_IWOTH else f"it is the folder of another user, {status.st_uid}"
        return f"{who}, and a cubin is code that runs as this one"
    return ""


def remove_least_recently_used(folder: Path, *, keep: str, bound: int = BOUND_BYTES) -> None:
    """Remove files of cubins, those first that were used longest ago, until all together have at most `bound` bytes.

    Never the file `keep`, nor one that was built ahead of time. What another process holds loaded is in its memory, and does
    not miss its file. Also removes what a killed process left unfinished. What cannot be removed is left.
    """
    for path, status in _files(folder, _UNFINISHED_NAME):
        if time.time() - status.st_mtime > _STALE_SECONDS:
            _unlink(path)
    found = sorted(_files(folder, _CUBIN_NAME), key=lambda each: each[1].st_mtime_ns)
    total = sum(status.st_size for _, status in found)
    for path, status in found:
        if total <= bound:
            return
        if str(path) != keep and not _built_ahead_of_time(path):
            _unlink(path)
            total -= status.st_size


def _built_ahead_of_time(path: Path) -> bool:
    content = read_cubin_file(path)
    return content is not None and content.description.ahead_of_time


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files whose names are of the cache's own making; one that another process removes meanwhile is left out."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if names.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()

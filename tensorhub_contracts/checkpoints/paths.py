"""Paths as text. `pathlib` takes longer to import than the headers of a checkpoint take to read, and an inspection needs little of it."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

#: What says that nothing lies at a path: it is not there, something on the way is no folder, its links lead in a circle, or no
#: file can have such a name.
NOTHING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def plain_path(path: str | os.PathLike[str]) -> str:
    """Return a path as `pathlib` spells it: without repeated or final slashes and without steps that lead nowhere (`.`)."""
    text = os.fspath(path)
    root = "//" if text.startswith("//") and not text.startswith("///") else "/" if text.startswith("/") else ""
    return root + "/".join(step for step in text.split("/") if step not in ("", ".")) or "."


def inside(folder: str, name: str) -> str:
    """Return the path of what a folder holds under a plain name; what the working folder holds has no folder in front."""
    return name if folder == "." else os.path.join(folder, name)


def folder_of(path: str) -> str:
    """Return the folder that holds a plain path."""
    return os.path.dirname(path) or "."  # noqa: PTH120  # the reason for this module


def last_name(path: str) -> str:
    """Return the last segment of a path, or the path itself if it has none."""
    name = os.path.basename(plain_path(path))  # noqa: PTH119  # the reason for this module
    return path if name in ("", ".") else name


def mode_of(path: str) -> int:
    """Return the mode of what a path leads to, or 0 if nothing is there; raises OSError where that cannot be found out."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116  # the reason for this module
    except ValueError:  # a path that no file can have
        return 0
    except OSError as error:
        if error.errno in NOTHING:
            return 0
        raise


def is_folder(path: str) -> bool:
    """Whether a path leads to a folder; raises OSError where that cannot be found out."""
    return stat.S_ISDIR(mode_of(path))

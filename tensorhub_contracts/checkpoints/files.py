"""Opens files, and says why one cannot be opened."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, Final

from tensorhub_contracts.checkpoints.paths import NOTHING, folder_of, is_folder, last_name
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import LARGEST_DOCUMENT

#: The name of a file that says that its folder is being written, and is no checkpoint yet.
UNFINISHED: Final = ".tensorhub-unfinished"

#: More than the index of any checkpoint has, and as much as a header may have: DeepSeek-V3's takes 9 MB.
INDEX_SIZE_LIMIT: Final = 100_000_000

_DOWNLOAD = "Download the file again and compare its size with the one that its source states."


def open_regular(path: str | os.PathLike[str], *, name: str) -> tuple[int, int]:
    """Open a file for reading and return its descriptor and size in bytes.

    `name` is how messages call it. Raises `Refusal`: `file-missing`, `file-broken-link`, or `file-unreadable` for a
    folder, a pipe, a device, a path that no file can have and whatever the operating system refuses.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise unreadable(path, error, name=name) from error
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise unreadable(path, error, name=name) from error
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        remedy = "Put the file itself in its place."
        raise _refusal("file-unreadable", name, "a regular file", _kind_of_node(status.st_mode), remedy)
    return descriptor, status.st_size


def open_file(path: str | os.PathLike[str], *, name: str) -> BinaryIO:
    """Open a regular file for reading; raise `Refusal` as `open_regular` does, and wait for nobody."""
    return os.fdopen(open_regular(path, name=name)[0], "rb")


def read_json_file(path: str, *, limit: int = LARGEST_DOCUMENT) -> bytes:
    """Return the bytes of a JSON or TOML file; one that is larger than any is refused by its size, before it is read."""
    descriptor, size = open_regular(path, name=path)
    with os.fdopen(descriptor, "rb") as file:
        if size <= limit:
            try:
                content = file.read(limit + 1)  # what grows meanwhile is not read to its end
            except OSError as error:
                raise unreadable(path, error, name=path) from error
            if len(content) <= limit:
                return content
    remedy = "This is not the file that its name says; download it again."
    raise _refusal("file-unreadable", path, f"at most {limit:,} bytes", f"{max(size, limit + 1):,} bytes", remedy)


def unreadable(path: str | os.PathLike[str], error: OSError | ValueError, *, name: str) -> Refusal:
    """Return the refusal for a file that could not be opened or read."""
    if isinstance(error, ValueError):  # a NUL or a lone surrogate in the name
        return _refusal("file-missing", name, "a file", f"a path that no file can have: {error}", "Check the path.")
    if isinstance(error, FileNotFoundError):
        from tensorhub_contracts.checkpoints.unfinished import with_unfinished  # only for files that are missing

        missing = _refusal("file-missing", name, "a file", "nothing at that path", "Download the file.")
        if os.path.islink(path):
            found = f"a link to {os.readlink(path)}, which does not exist"
            missing = _refusal("file-broken-link", name, "a file", found, "Download the file again.")
        return Refusal([with_unfinished(each, folder_of(os.fspath(path))) for each in missing.violations])
    remedy = "Check the file and its permissions."
    return _refusal("file-unreadable", name, "a readable file", error.strerror or type(error).__name__, remedy)


def exists_or_dangles(path: str | os.PathLike[str]) -> bool:
    """Whether anything lies at the path, a broken link included. A path that no file can have is one where nothing lies.

    Raises `Refusal` (`folder-unreadable`) where the folder lets nobody look.
    """
    try:
        os.lstat(path)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in NOTHING:
            return False
        raise folder_unreadable(folder_of(os.fspath(path)), error) from error
    return True


def list_folder(path: str) -> list[str]:
    """Return the names in a folder, sorted; raise `Refusal` (`folder-unreadable`) where the operating system lists none."""
    try:
        return sorted(os.listdir(path))
    except (OSError, ValueError) as error:
        raise folder_unreadable(path, error) from error


def require_finished(folder: str) -> None:
    """Raise `Refusal` (`checkpoint-unfinished`) for a folder that a conversion is writing, or was when it was killed."""
    if exists_or_dangles(os.path.join(folder, UNFINISHED)):
        expected = "a folder that all of a checkpoint was written to"
        raise Refusal([Violation(code="checkpoint-unfinished", object=folder, expected=expected, found=f"{UNFINISHED} in it")])


def known_folder(path: str) -> bool:
    """Whether a path leads to a folder; raises `Refusal` (`folder-unreadable`) where that cannot be found out."""
    try:
        return is_folder(path)
    except OSError as error:
        raise folder_unreadable(path, error) from error


def folder_unreadable(path: str, error: OSError | ValueError) -> Refusal:
    """Return the refusal for a folder that cannot be listed, or in which nothing can be looked at."""
    found = getattr(error, "strerror", None) or str(error)
    return Refusal([Violation(code="folder-unreadable", object=path, expected="a folder that can be listed and entered", found=found)])


def _kind_of_node(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _refusal(code: str, name: str, expected: str, found: str, remedy: str) -> Refusal:
    return Refusal([Violation(code=code, object=last_name(name), expected=expected, found=found, remedy=remedy, shard=name)])

"""The file of one cubin: the ELF bytes, a line of JSON that says how they were made, and a line with the digest of both.

The digest stands last, so a file that was cut off, altered or never finished does not verify; whatever reads ELF (nvdisasm,
cuobjdump) reads the file as it is, and stops before the two lines. A digest is no signature: a user who may write
into the folder may put code into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import attrs

#: How a file's temporary name ends.
UNFINISHED: Final = ".partial"

_DIGEST_DIGITS: Final = 64
_LARGEST_DESCRIPTION: Final = 65536


@attrs.frozen
class CubinDescription:
    """How a cubin was made."""

    #: The digest of all that it was made from, but the compiler's version.
    recipe: str
    #: What it was compiled for, as "sm_90a".
    architecture: str
    #: The NVRTC that made it, as "13.5".
    nvrtc_version: str
    #: All options of NVRTC.
    options: tuple[str, ...]
    #: Whether `tensorhub kernels build` made it for an image: the size bound of the cache leaves such a file alone.
    ahead_of_time: bool


@attrs.frozen
class CubinFile:
    """A verified file's content."""

    #: The ELF bytes.
    code: bytes
    #: How they were made.
    description: CubinDescription


def cubin_to_bytes(code: bytes, description: CubinDescription) -> bytes:
    """Return the bytes of the file."""
    line = json.dumps(attrs.asdict(description), ensure_ascii=False, separators=(",", ":")).encode()
    content = code + b"\n" + line + b"\n"
    return content + hashlib.sha256(content).hexdigest().encode() + b"\n"


def cubin_from_bytes(data: bytes) -> CubinFile | None:
    """Return what the bytes of a file hold, or None if they are not a whole, unaltered file of this format."""
    content, digest = data[: -_DIGEST_DIGITS - 1], data[-_DIGEST_DIGITS - 1 :]
    if digest != hashlib.sha256(content).hexdigest().encode() + b"\n":
        return None
    start = content.rfind(b"\n", max(0, len(content) - _LARGEST_DESCRIPTION), len(content) - 1)  # JSON holds no newline
    if start <= 0:
        return None
    description = _description_from_line(content[start + 1 :])
    return None if description is None else CubinFile(content[:start], description)


def _description_from_line(line: bytes) -> CubinDescription | None:
    """Return the description in a line of JSON; None if it is another one, as in a file of another program that ends as ours do."""
    try:
        fields = json.loads(line.decode())
    except (ValueError, RecursionError):  # no UTF-8, no JSON, or arrays thousands deep
        return None
    match fields:
        case {
            "recipe": str(recipe),
            "architecture": str(architecture),
            "nvrtc_version": str(nvrtc_version),
            "options": [*options],
            "ahead_of_time": bool(ahead_of_time),
            **others,
        } if not others and all(isinstance(each, str) for each in options):
            return CubinDescription(recipe, architecture, nvrtc_version, tuple(options), ahead_of_time)
    return None


def read_cubin_file(path: Path) -> CubinFile | None:
    """Return what a file holds, or None if there is none that can be read, or it is not a whole, unaltered one of this format.

    A link, and a file that another user wrote or may write to, count as none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)  # a pipe keeps nobody waiting
    except OSError:
        return None
    try:
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            return cubin_from_bytes(file.read()) if stat.S_ISREG(status.st_mode) and is_trusted(status) else None
    except OSError:
        return None


def is_trusted(status: os.stat_result) -> bool:
    """Whether nobody but this user and root can have put code into a file or a folder, which a digest does not show."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH


def write_cubin_file(path: Path, content: CubinFile) -> None:
    """Write a file under a temporary name in its folder, to the disk, read it back, and rename it. Raises OSError.

    A process that reads `path` meanwhile finds the earlier file or the whole new one. A file for an image may be read by every user.
    """
    for_others = content.description.ahead_of_time
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if for_others else 0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=UNFINISHED)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(cubin_to_bytes(content.code, content.description))
            file.flush()
            os.fsync(descriptor)
        temporary.chmod(0o644 if for_others else 0o600)
        if read_cubin_file(temporary) != content:
            raise OSError(None, "what was written reads back otherwise", name)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

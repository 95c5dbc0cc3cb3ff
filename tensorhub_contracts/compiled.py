"""TOML files of this package as they are compiled when the distribution is built: JSON, which is read in a fraction of the time.

The compiled form holds the text that it was made from, and counts only beside that very text: it cannot be out of date. A
checksum at its end shows damage. One that does not count is passed over, and the TOML is read.
"""

from __future__ import annotations

import os
import zlib
from typing import Any, Final

#: The folder of the package, where its data lies.
FOLDER: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # no Path is made on the way of a command that must be quick
_CHECKSUM: Final = ', "crc32": '


def read_source(path: str) -> str:
    """Return the text of a TOML file, with the ends of its lines as they are; `path` may be relative to the package."""
    with open(os.path.join(FOLDER, path), encoding="utf-8", newline="") as file:  # noqa: PTH123  # the same
        return file.read()


def compile_text(source: str, **parts: Any) -> str:
    """Return the compiled form of a TOML text: what it says as JSON, in parts, and the text itself."""
    import json  # only for a build

    body = json.dumps({**parts, "source": source}, ensure_ascii=False)[:-1]
    return f"{body}{_CHECKSUM}{zlib.crc32(body.encode())}}}"


def is_intact(data: bytes) -> bool:
    """Whether a compiled form is whole: its checksum is that of all that stands before."""
    body, _, checksum = data.rpartition(_CHECKSUM.encode())
    return checksum == b"%d}" % zlib.crc32(body)


def read_intact(name: str) -> bytes | None:
    """Return the compiled form of this name, which lies in the package, or None if there is none or it is damaged."""
    try:
        with open(os.path.join(FOLDER, name), "rb") as file:  # noqa: PTH123  # the same
            data = file.read()
    except OSError:
        return None
    return data if is_intact(data) else None

"""Root may read and write everything: what a user may not do is tested as another user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The user that has no rights of its own, `nobody`.
NOBODY = 65534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Let go of root's right to read and write everywhere, for the while."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)  # the real one too, which os.access asks by
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextmanager
def foreign_folder() -> Iterator[Path]:
    """Make a folder that everybody may enter, also those that may not enter the tests' own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)

"""Watches what the process does to files, as the kernel sees it: bytes read, open descriptors, maps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads")


class Reading:
    """How many bytes the process read; set when the block ends."""

    count = -1


@contextmanager
def bytes_read() -> Iterator[Reading]:
    """Count the bytes that read calls of any kind return inside the block, exactly.

    The counter does not yet hold the read that fetches it, so the first fetch is subtracted.
    """
    reading = Reading()
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    try:
        before = os.pread(descriptor, 4096, 0)
        yield reading
        after = os.pread(descriptor, 4096, 0)
        reading.count = _rchar(after) - _rchar(before) - len(before)
    finally:
        os.close(descriptor)


def _rchar(text: bytes) -> int:
    return int(text.split()[1])


def open_files() -> dict[str, str]:
    """Return the open descriptors and what they lead to, without the one that lists them."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        found[number] = target
    return found


def maps() -> str:
    """Return the maps of the process as text: every mapped file stands in it with its path."""
    return Path("/proc/self/maps").read_text()

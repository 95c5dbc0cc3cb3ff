"""Writes one safetensors file tensor by tensor, in any order: the header is known before the first value is."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

import attrs

from tensorhub_contracts.checkpoints.geometry import BITS, byte_length

#: Bytes that are handed to the operating system at a time.
_PIECE: Final = 8 << 20


@attrs.frozen
class WrittenTensor:
    """A tensor that is to be written."""

    #: Its name.
    name: str
    #: Its dtype, as the safetensors format calls it.
    dtype: str
    #: Its shape in elements.
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        size = byte_length(self.dtype, self.shape)
        if size is None:
            raise ValueError(f"{self.name}: {self.dtype} {self.shape} does not fill whole bytes")
        return size


@attrs.frozen
class FilePlan:
    """The layout of a file."""

    #: Its header as it will lie there.
    header: bytes
    #: Where each tensor begins in the file, by its name.
    places: Mapping[str, int]
    #: Its size in bytes.
    size: int

    @property
    def payload_size(self) -> int:
        """The bytes after the header."""
        return self.size - 8 - len(self.header)


def plan_file(tensors: Iterable[WrittenTensor], metadata: Mapping[str, str]) -> FilePlan:
    """Lay out a file. Wider elements come first, so that each tensor is aligned to its elements; else the order is kept."""
    ordered = sorted(tensors, key=lambda each: -BITS[each.dtype])
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    position = 0
    begins = {}
    for each in ordered:
        begins[each.name] = position
        header[each.name] = {"dtype": each.dtype, "shape": list(each.shape), "data_offsets": [position, position + each.size]}
        position += each.size
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    places = {name: 8 + len(raw) + begin for name, begin in begins.items()}
    return FilePlan(raw, places, 8 + len(raw) + position)


class ShardFile:
    """A file under a temporary name, which gets its own when `finish` has seen all of it on the disk."""

    def __init__(self, path: Path, plan: FilePlan) -> None:
        self._path, self._plan = path, plan
        self._temporary = path.with_name(path.name + ".writing")
        self._missing = plan.payload_size
        self._descriptor = _create(self._temporary)
        try:
            self._write(0, len(plan.header).to_bytes(8, "little") + plan.header)
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Write bytes of a tensor, from `offset` bytes after its beginning on; each byte of a tensor is written once."""
        self._missing -= len(data)
        self._write(self._plan.places[name] + offset, data)

    def finish(self) -> None:
        """Flush the file to the disk and give it its name; raises ValueError if not every tensor was written."""
        if self._missing:
            raise ValueError(f"{self._path.name}: {self._missing} bytes were not written")
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        self._temporary.rename(self._path)
        sync_folder(self._path.parent)

    def discard(self) -> None:
        """Remove the file if it is unfinished: what it takes on the disk is needed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._temporary.unlink(missing_ok=True)

    def _write(self, place: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._descriptor, view[:_PIECE], place)
            view, place = view[count:], place + count


def _create(path: Path) -> int:
    """Open a file for writing, made or emptied; raise OSError where a link, a pipe or a device has its name, and wait for nobody."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ELOOP):  # a pipe that nobody reads, a link
            raise
    raise FileExistsError(errno.EEXIST, "something that is no file has the name of a file to be written", str(path))


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file so that it is there as a whole or not at all."""
    temporary = path.with_name(path.name + ".writing")
    descriptor = _create(temporary)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Reads a few bytes of tensors where they lie: of files by position, of sources in memory by slices."""

from __future__ import annotations

import os
from collections.abc import Callable

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.files import open_regular, unreadable
from tensorhub_contracts.checkpoints.header import Source
from tensorhub_contracts.checkpoints.paths import is_folder, plain_path
from tensorhub_contracts.errors import Refusal, Violation

#: Reads so many bytes of a tensor, from a place in it.
ReadTensor = Callable[[str, int, int], bytes]


def tensor_bytes(source: Source, checkpoint: Checkpoint) -> ReadTensor:
    """Return what reads bytes of the tensors of a checkpoint that was read from `source`.

    It raises `Refusal` for a file that cannot be read, or ends before the tensor does.
    """

    def read(name: str, place: int, count: int) -> bytes:
        shard = checkpoint.shard_of[name]
        header = checkpoint.headers[shard]
        begin = 8 + header.length + header.tensors[name].data_offsets[0] + place
        data = _read(source, checkpoint, shard, begin, count)
        if len(data) != count:
            found = f"{len(data):,} bytes at {begin:,}"
            raise Refusal([Violation(code="file-changed", object=shard, expected=f"{count:,} bytes of {name}", found=found, shard=shard)])
        return data

    return read


def _read(source: Source, checkpoint: Checkpoint, shard: str, begin: int, count: int) -> bytes:
    if isinstance(source, str | os.PathLike):
        path = plain_path(source)
        if is_folder(path):
            path = os.sep.join(filter(None, (path.rstrip(os.sep) or os.sep, checkpoint.component, shard)))
        descriptor, _ = open_regular(path, name=shard)
        try:
            return os.pread(descriptor, count, begin)
        except OSError as error:
            raise unreadable(path, error, name=shard) from error
        finally:
            os.close(descriptor)
    if hasattr(source, "seek") and hasattr(source, "read") and not isinstance(source, memoryview):
        source.seek(begin)
        return bytes(source.read(count))
    with memoryview(source) as view:
        return bytes(view[begin : begin + count])

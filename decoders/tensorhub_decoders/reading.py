"""Reads stored tensors of a proved checkpoint, one at a time, at the offsets that its headers give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tensorhub_contracts import Inspection, Refusal, Violation
from tensorhub_contracts.checkpoint import Checkpoint

if TYPE_CHECKING:
    import torch

#: The dtypes of the safetensors format that torch has, by torch's name.
_TORCH_NAMES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "F32": "float32",
    "I64": "int64",
    "F64": "float64",
}


class TensorReader:
    """Reads tensors of a checkpoint from its files; keeps one file open at a time, and none after `close`."""

    def __init__(self, inspection: Inspection) -> None:
        inspection.require()
        assert inspection.checkpoint is not None  # a proved contract has one
        self.checkpoint: Checkpoint = inspection.checkpoint
        self._shard = ""
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file that is open, if any."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._shard, self._descriptor = "", -1

    def read(self, name: str) -> torch.Tensor:
        """Return a stored tensor, with its stored dtype and shape, in memory of its own.

        Raises `Refusal` (`file-changed`) if the file is no longer the one whose header was inspected.
        """
        import torch

        shard = self.checkpoint.shard_of[name]
        header = self.checkpoint.headers[shard]
        entry = header.tensors[name]
        begin, end = entry.data_offsets
        buffer = bytearray(end - begin)
        self._open(shard)
        view, place = memoryview(buffer), 8 + header.length + begin
        while view:
            count = os.preadv(self._descriptor, [view], place)
            if count == 0:
                raise self._changed(shard, "it is shorter")
            view, place = view[count:], place + count
        dtype: torch.dtype = getattr(torch, _TORCH_NAMES[entry.dtype])
        if not buffer:
            return torch.empty(entry.shape, dtype=dtype)
        return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).reshape(entry.shape)

    def _open(self, shard: str) -> None:
        if shard == self._shard:
            return
        self.close()
        header = self.checkpoint.headers[shard]
        self._descriptor = os.open(self._path(shard), os.O_RDONLY | os.O_CLOEXEC)
        self._shard = shard
        if os.fstat(self._descriptor).st_size != header.file_size:
            raise self._changed(shard, f"{os.fstat(self._descriptor).st_size} bytes")
        if os.pread(self._descriptor, header.length, 8) != header.raw:
            raise self._changed(shard, "another header")

    def _path(self, shard: str) -> Path:
        path = Path(self.checkpoint.path)
        return path / self.checkpoint.component / shard if path.is_dir() else path

    def _changed(self, shard: str, found: str) -> Refusal:
        expected = "the file whose header was inspected"
        return Refusal([Violation("file-changed", shard, expected, found, "Inspect the checkpoint again, and do not write to it.")])


def stored_names(inspection: Inspection) -> Iterator[str]:
    """Yield the names of all tensors, in the order in which they lie in the shards."""
    assert inspection.checkpoint is not None
    for shard, header in inspection.checkpoint.headers.items():
        names = sorted(header.tensors, key=lambda name: header.tensors[name].data_offsets)
        yield from (name for name in names if inspection.checkpoint.shard_of[name] == shard)

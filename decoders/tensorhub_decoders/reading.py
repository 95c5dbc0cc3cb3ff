"""Reads stored tensors of a proved checkpoint at the offsets that its headers give, whole or in part, from many threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tensorhub_contracts import Inspection, Refusal, Violation
from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.files import open_regular
from tensorhub_contracts.checkpoints.geometry import TensorEntry

if TYPE_CHECKING:
    import torch

#: The dtypes of the safetensors format that a proved checkpoint may hold, by torch's name.
_TORCH_NAMES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
}


class TensorReader:
    """Reads tensors of a checkpoint from its files, which stay open until `close`; nothing is mapped."""

    def __init__(self, inspection: Inspection) -> None:
        inspection.require()
        assert inspection.checkpoint is not None  # a proved contract has one
        self.checkpoint: Checkpoint = inspection.checkpoint
        self._descriptors: dict[str, int] = {}
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file that is open."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def entry(self, name: str) -> TensorEntry:
        """Return a tensor's entry in the header of the shard that counts."""
        return self.checkpoint.headers[self.checkpoint.shard_of[name]].tensors[name]

    def read(self, name: str) -> torch.Tensor:
        """Return a stored tensor, with its stored dtype and shape, in memory of its own.

        Raises `Refusal` (`file-changed`) if the file is no longer the one whose header was inspected.
        """
        import torch

        entry = self.entry(name)
        buffer = bytearray(entry.data_offsets[1] - entry.data_offsets[0])
        if not buffer:
            return torch.empty(entry.shape, dtype=torch_dtype(entry.dtype))
        self.read_into(name, memoryview(buffer))
        return torch.frombuffer(buffer, dtype=torch.uint8).view(torch_dtype(entry.dtype)).reshape(entry.shape)

    def read_into(self, name: str, buffer: memoryview, offset: int = 0) -> None:
        """Fill a buffer with the bytes of a stored tensor from `offset` on. Raises `Refusal` as `read` does."""
        shard = self.checkpoint.shard_of[name]
        header = self.checkpoint.headers[shard]
        place = 8 + header.length + header.tensors[name].data_offsets[0] + offset
        descriptor = self._descriptor(shard)
        while buffer:
            count = os.preadv(descriptor, [buffer], place)
            if count == 0:
                raise self._changed(shard, "it is shorter")
            buffer, place = buffer[count:], place + count

    def _descriptor(self, shard: str) -> int:
        with self._opening:
            if shard not in self._descriptors:
                try:
                    descriptor, _ = open_regular(self._path(shard), name=shard)
                except Refusal as refusal:  # it was there when it was inspected
                    raise self._changed(shard, refusal.violations[0].found) from refusal
                try:
                    self._verify(shard, descriptor)
                except BaseException:
                    os.close(descriptor)  # kept, it would be read without a look the next time
                    raise
                self._descriptors[shard] = descriptor
            return self._descriptors[shard]

    def _verify(self, shard: str, descriptor: int) -> None:
        header = self.checkpoint.headers[shard]
        size = os.fstat(descriptor).st_size
        if size != header.file_size:
            raise self._changed(shard, f"{size} bytes")
        if os.pread(descriptor, header.length, 8) != header.raw:
            raise self._changed(shard, "another header")

    def _path(self, shard: str) -> Path:
        path = Path(self.checkpoint.path)
        return path / self.checkpoint.component / shard if path.is_dir() else path

    def _changed(self, shard: str, found: str) -> Refusal:
        expected = "the file whose header was inspected"
        return Refusal(
            [
                Violation(
                    code="file-changed",
                    object=shard,
                    expected=expected,
                    found=found,
                    remedy="Inspect the checkpoint again, and do not write to it.",
                )
            ]
        )


def torch_dtype(dtype: str) -> torch.dtype:
    """Return torch's dtype for one of the safetensors format; raises KeyError for one that no proved checkpoint holds."""
    import torch

    found: torch.dtype = getattr(torch, _TORCH_NAMES[dtype])
    return found


def stored_names(inspection: Inspection) -> Iterator[str]:
    """Yield the names of all tensors, in the order in which they lie in the shards."""
    assert inspection.checkpoint is not None
    for shard, header in inspection.checkpoint.headers.items():
        names = sorted(header.tensors, key=lambda name: header.tensors[name].data_offsets)
        yield from (name for name in names if inspection.checkpoint.shard_of[name] == shard)

"""Reading stored tensors: as they are stored, in the order in which they lie, and from no file but the one that was inspected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorhub_decoders.reading as reading
import torch
from tensorhub_decoders.reading import TensorReader, stored_names

from tensorhub_contracts import Refusal, inspect, load
from tests.support.checkpoint_files import file_bytes, header_bytes

#: What a dense checkpoint may hold beside its weights: the dtype in a header, and torch's.
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "C64": torch.complex64,
}


def write(folder: Path, payload: bytes = bytes(32)) -> Path:
    """Write a checkpoint of one matrix, and return its file."""
    file = folder / "model.safetensors"
    file.write_bytes(file_bytes(header_bytes({"a.weight": ("BF16", (4, 4))}), payload))
    return file


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_dtype_is_read_as_it_is_stored(dtype: str, tmp_path: Path) -> None:
    width = DTYPES[dtype].itemsize
    stored = bytes([1, 0, 1]) if dtype == "BOOL" else bytes(range(3 * width))
    header = header_bytes({"a.weight": ("BF16", (4, 4)), "beside": (dtype, (3,))})
    (tmp_path / "model.safetensors").write_bytes(file_bytes(header, bytes(32) + stored))
    with TensorReader(inspect(tmp_path)) as reader:
        read = reader.read("beside")
    for found in (read, load(tmp_path, dtype="BF16", resident=False).weights["beside"]):
        assert (found.dtype, found.shape) == (DTYPES[dtype], (3,))
        assert bytes(found.view(torch.uint8).numpy()) == stored


def test_names_come_in_the_order_of_their_bytes_whatever_that_of_the_header(tmp_path: Path) -> None:
    entry = '"{}":{{"dtype":"BF16","shape":[2,2],"data_offsets":[{},{}]}}'
    header = "{" + ",".join(entry.format(name, begin, begin + 8) for name, begin in (("b", 8), ("c", 16), ("a", 0))) + "}"
    (tmp_path / "model.safetensors").write_bytes(file_bytes(header.encode(), bytes(24)))
    assert list(stored_names(inspect(tmp_path))) == ["a", "b", "c"]


def test_no_reader_takes_a_checkpoint_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(file_bytes(header_bytes({"a.weight": ("F8_E5M2", (4, 4))}), bytes(16)))
    inspection = inspect(tmp_path)
    with pytest.raises(Refusal) as caught:
        TensorReader(inspection)
    assert caught.value.codes == tuple(each.code for each in inspection.violations)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "shorter": lambda content: content[:-1],
    "longer": lambda content: content + bytes(2),
    "another header": lambda content: content.replace(b"a.weight", b"b.weight"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_refused_as_often_as_it_is_read(change: str, tmp_path: Path) -> None:
    file = write(tmp_path)
    inspection = inspect(tmp_path)
    file.write_bytes(CHANGES[change](file.read_bytes()))
    with TensorReader(inspection) as reader:
        for _ in range(3):
            with pytest.raises(Refusal) as caught:
                reader.read("a.weight")
            assert caught.value.codes == ("file-changed",)
            assert str(file) not in open_files(), "nothing that was not verified stays open"


def open_files() -> list[str]:
    links = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link)]


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, bytes(range(32)))
    original, calls = os.preadv, []

    def counted(*arguments: Any) -> int:
        calls.append(arguments)
        assert len(calls) < 10, "it asks a file that has ended again and again"
        return original(*arguments)

    with TensorReader(inspect(tmp_path)) as reader:
        assert bytes(reader.read("a.weight").view(torch.uint8).numpy()) == bytes(range(32))
        os.truncate(file, file.stat().st_size - 10)
        monkeypatch.setattr(reading.os, "preadv", counted)
        with pytest.raises(Refusal) as caught:
            reader.read("a.weight")
    assert [(each.code, each.found) for each in caught.value.violations] == [("file-changed", "it is shorter")]

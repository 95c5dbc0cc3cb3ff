"""A source may give fewer bytes than were asked for, as network file systems do; what is read is the same."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tensorhub_contracts.checkpoints.header import read_header
from tests.support.checkpoint_files import file_bytes, header_bytes, write_raw
from tests.support.refusals import refused_alone

TENSORS = {"layers.0.weight": ("BF16", (8, 16)), "layers.1.weight": ("F32", (3,))}
HEADER = header_bytes(TENSORS, {"format": "pt"})
PAYLOAD = 8 * 16 * 2 + 3 * 4


def give_at_most(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every positioned read return no more than `count` bytes."""
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, wanted, offset: whole(descriptor, min(wanted, count), offset))


@pytest.mark.parametrize("count", [1, 3, 16, 4096])
def test_a_path_that_gives_few_bytes_at_a_time_is_read_to_the_end(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_raw(tmp_path / "model.safetensors", HEADER, PAYLOAD)
    whole = read_header(path)
    give_at_most(count, monkeypatch)
    assert read_header(path) == whole
    assert whole.raw == HEADER


@pytest.mark.parametrize("count", [1, 3, 16, 4096])
def test_a_file_object_that_gives_few_bytes_at_a_time_is_read_to_the_end(count: int) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(count if size is None or size < 0 else min(size, count))

    content = file_bytes(HEADER, bytes(PAYLOAD))
    assert read_header(Slow(content)) == read_header(content)


@pytest.mark.parametrize("count", [1, 3, 16])
def test_a_file_of_another_kind_is_recognized_from_few_bytes_at_a_time(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"<!DOCTYPE html><html><head><title>Not found</title></head></html>" * 3)
    said = refused_alone("file-not-safetensors", read_header, path)
    give_at_most(count, monkeypatch)
    assert refused_alone("file-not-safetensors", read_header, path) == said

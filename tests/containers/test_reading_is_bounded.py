"""What is read of a checkpoint: 8 bytes and the header of each shard, and the JSON files; nothing stays open, nothing is mapped."""

from __future__ import annotations

import io
import mmap
import os
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints import header
from tensorhub_contracts.checkpoints.header import read_header
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import (
    Tensors,
    file_bytes,
    header_bytes,
    shard_name,
    write_checkpoint,
    write_index,
    write_raw,
    write_sparse,
)
from tests.support.refusals import refused, well_formed
from tests.support.system_calls import bytes_read, maps, needs_proc, open_files

UNQUANTIZED: Tensors = {f"layers.{number}.weight": ("BF16", (64, 128)) for number in range(40)}
INDEX = "model.safetensors.index.json"

pytestmark = needs_proc


def header_sizes(folder: Path) -> int:
    """8 + header length of every shard of a folder, read from the files by hand."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            total += 8 + int.from_bytes(file.read(8), "little")
    return total


CONFIGURATIONS: dict[str, dict[str, str]] = {
    "none": {},
    "config.json": {"config.json": '{"hidden_size": 128}'},
    "all": {"config.json": '{"a": 1}', "hf_quant_config.json": '{"b": null}', "params.json": '{"dim": 128}'},
    "others that are not read": {"tokenizer.json": "x" * 10_000, "generation_config.json": "{}"},
}


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_exactly_headers_and_json_files_are_read_and_the_checkpoint_says_so(
    shards: int, index: bool, configuration: dict[str, str], tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=shards, index=index)
    for name, text in configuration.items():
        (folder / name).write_text(text)
    read_names = [name for name in (INDEX, "config.json", "hf_quant_config.json", "params.json") if (folder / name).exists()]
    expected = header_sizes(folder) + sum((folder / name).stat().st_size for name in read_names)
    read_checkpoint(folder)  # modules that are imported late are not what is counted
    with bytes_read() as read:
        checkpoint = read_checkpoint(folder)
    assert read.count == expected
    assert checkpoint.bytes_read == expected


def test_each_shard_is_read_from_its_first_byte_to_the_end_of_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3)
    reads: dict[str, list[tuple[int, int]]] = {}
    pread = os.pread

    def watched(descriptor: int, count: int, offset: int) -> bytes:
        found = pread(descriptor, count, offset)
        reads.setdefault(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, []).append((offset, offset + len(found)))
        return found

    monkeypatch.setattr(os, "pread", watched)
    checkpoint = read_checkpoint(folder)
    assert {shard.name for shard in checkpoint.shards} == set(reads)
    for shard in checkpoint.shards:
        assert sum(end - begin for begin, end in reads[shard.name]) == 8 + shard.header_length
        assert max(end for _, end in reads[shard.name]) == 8 + shard.header_length


def test_a_shard_of_46_gb_costs_no_more_than_its_header(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", {"big": ("BF16", (23_000, 1_000_000))})
    assert path.stat().st_size > 46_000_000_000
    read_checkpoint(tmp_path)
    with bytes_read() as read:
        checkpoint = read_checkpoint(tmp_path)
    assert read.count == checkpoint.bytes_read == header_sizes(tmp_path) < 200


def test_extra_files_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    (folder / "consolidated.safetensors").write_bytes(b"x")
    (folder / "model.bin").write_bytes(b"\x80\x02.")
    opened: list[str] = []
    real = os.open

    def watched(path: Any, *arguments: Any, **keywords: Any) -> int:
        opened.append(Path(os.fsdecode(path)).name)
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", watched)
    read_checkpoint(folder)
    assert [name for name in opened if name.endswith((".safetensors", ".bin"))] == [shard_name(1, 2), shard_name(2, 2)]


# Descriptors and maps.


def _empty(folder: Path) -> None:
    (folder / shard_name(2, 2)).write_bytes(b"")


def _bad_json(folder: Path) -> None:
    write_raw(folder / shard_name(2, 2), b"{ no JSON", 10)


def _huge_length(folder: Path) -> None:
    (folder / shard_name(2, 2)).write_bytes(b"\xff" * 100)


def _pointer(folder: Path) -> None:
    (folder / shard_name(2, 2)).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n")


def _truncated(folder: Path) -> None:
    os.truncate(folder / shard_name(2, 2), (folder / shard_name(2, 2)).stat().st_size - 1)


def _folder(folder: Path) -> None:
    (folder / shard_name(2, 2)).unlink()
    (folder / shard_name(2, 2)).mkdir()


def _pipe(folder: Path) -> None:
    (folder / shard_name(2, 2)).unlink()
    os.mkfifo(folder / shard_name(2, 2))


def _missing(folder: Path) -> None:
    (folder / shard_name(2, 2)).unlink()


def _broken_link(folder: Path) -> None:
    (folder / shard_name(2, 2)).unlink()
    (folder / shard_name(2, 2)).symlink_to("nowhere")


def _bad_index(folder: Path) -> None:
    (folder / INDEX).write_text("{")


def _stale_index(folder: Path) -> None:
    write_index(folder / INDEX, {"x": shard_name(1, 2), "y": shard_name(2, 2)})


def _bad_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def _nothing(folder: Path) -> None:
    pass


FAULTS: list[tuple[Callable[[Path], None], str]] = [
    (_nothing, ""),
    (_empty, "file-empty"),
    (_bad_json, "header-json"),
    (_huge_length, "header-length"),
    (_pointer, "file-not-safetensors"),
    (_truncated, "file-truncated"),
    (_folder, "file-unreadable"),
    (_pipe, "file-unreadable"),
    (_missing, "index-shard-missing"),
    (_broken_link, "file-broken-link"),
    (_bad_index, "index-json"),
    (_stale_index, "index-tensor-missing"),
    (_bad_config, "config-json"),
]


@pytest.mark.parametrize(("fault", "code"), FAULTS, ids=[fault.__name__.strip("_") for fault, _ in FAULTS])
def test_no_descriptor_is_open_and_nothing_is_mapped_afterwards_nor_meanwhile(
    fault: Callable[[Path], None], code: str, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    fault(folder)
    meanwhile: list[tuple[bool, bool]] = []

    def look(done: int, total: int) -> None:
        meanwhile.append((str(tmp_path) in maps(), any(str(tmp_path) in target for target in open_files().values())))

    inspect(folder)
    before = open_files()
    inspection = inspect(folder, progress=look)
    assert open_files() == before
    assert str(tmp_path) not in maps()
    assert set(meanwhile) <= {(False, False)}
    if code:
        assert well_formed(inspection.violations)[0].code == code
    else:
        assert inspection.contract == "plain.bf16@1"
        assert len(meanwhile) == 2


@pytest.mark.parametrize("function", ["fstat", "pread", "posix_fadvise"])
def test_no_descriptor_stays_open_when_the_operating_system_fails_half_way(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sparse(tmp_path / "model.safetensors", UNQUANTIZED)

    def fail(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        (violation,) = refused(read_header, path)
    assert open_files() == before
    assert (violation.code, violation.object, violation.found) == ("file-unreadable", "model.safetensors", "Input/output error")


def test_no_descriptor_stays_open_when_the_caller_interrupts(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = open_files()
    with pytest.raises(KeyboardInterrupt):
        read_checkpoint(folder, progress=interrupt)
    assert open_files() == before


def test_no_map_is_ever_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)

    def forbidden(*arguments: object, **keywords: object) -> None:
        raise AssertionError("a file was mapped")

    monkeypatch.setattr(header, "mmap", type("forbidden", (mmap.mmap,), {"__new__": forbidden}))
    monkeypatch.setattr(mmap, "mmap", forbidden)
    assert set(read_checkpoint(folder).tensors) == set(UNQUANTIZED)


def test_a_thousand_shards_are_verified_with_few_descriptors_and_can_be_deleted(tmp_path: Path) -> None:
    tensors: Tensors = {f"t.{number}": ("BF16", (2, 2)) for number in range(1000)}
    folder = write_checkpoint(tmp_path / "model", tensors, shards=1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    read_checkpoint(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, open_files())) + 4, hard))
    try:
        checkpoint = read_checkpoint(folder)
        each = [read_checkpoint(folder) for _ in range(2)]
        with bytes_read() as read:
            read_checkpoint(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(checkpoint.shards) == 1000
    assert set(checkpoint.tensors) == set(tensors)
    assert all(other.headers_digest == checkpoint.headers_digest for other in each)
    assert read.count == checkpoint.bytes_read == header_sizes(folder) + (folder / INDEX).stat().st_size
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert set(checkpoint.tensors) == set(tensors)  # what was read outlives the files


def test_progress_counts_every_shard_once(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=4)
    calls: list[tuple[int, int]] = []
    read_checkpoint(folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


# Every input route has one verdict: B2-15.


@contextmanager
def _path(path: Path) -> Iterator[Any]:
    yield path


@contextmanager
def _text(path: Path) -> Iterator[Any]:
    yield str(path)


@contextmanager
def _file(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield file
        assert not file.closed, "the caller's file is not ours to close"


@contextmanager
def _file_read_before(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        file.seek(3)
        yield file


@contextmanager
def _unbuffered(path: Path) -> Iterator[Any]:
    with path.open("rb", buffering=0) as file:
        yield file


@contextmanager
def _in_memory(path: Path) -> Iterator[Any]:
    yield io.BytesIO(path.read_bytes())


@contextmanager
def _bytes(path: Path) -> Iterator[Any]:
    yield path.read_bytes()


@contextmanager
def _bytearray(path: Path) -> Iterator[Any]:
    content = bytearray(path.read_bytes())
    yield content
    content.append(0)  # raises BufferError if a view was left behind


@contextmanager
def _memoryview(path: Path) -> Iterator[Any]:
    yield memoryview(path.read_bytes())


@contextmanager
def _view_of_part(path: Path) -> Iterator[Any]:
    yield memoryview(b"before" + path.read_bytes() + b"after")[6:-5]


@contextmanager
def _view_of_signed_bytes(path: Path) -> Iterator[Any]:
    yield memoryview(path.read_bytes()).cast("b")


@contextmanager
def _mmap(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield mapped
    mapped.close()  # raises BufferError if a view was left behind


class _Dribbling(io.RawIOBase):
    """A file that returns at most 5 bytes a read, as pipes, sockets and remote file systems may."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        found = self.file.read(min(len(buffer), 5))
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def _dribbling(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield _Dribbling(file)


ROUTES = (
    _path,
    _text,
    _file,
    _file_read_before,
    _unbuffered,
    _in_memory,
    _bytes,
    _bytearray,
    _memoryview,
    _view_of_part,
    _view_of_signed_bytes,
    _mmap,
    _dribbling,
)
GOOD = file_bytes(header_bytes({"w": ("F8_E4M3", (3,)), "s": ("F32", (1,))}, {"format": "pt"}), bytes(7))
CONTENTS = {
    "good": (GOOD, ()),
    "every dtype that the bytes interface of safetensors lacked": (
        file_bytes(header_bytes({"a": ("F4", (4,)), "b": ("F8_E8M0", (2,)), "c": ("F6_E2M3", (4,)), "d": ("F8_E4M3FNUZ", (1,))}), bytes(8)),
        (),
    ),
    "no tensors": (file_bytes(b"{}"), ()),
    "truncated": (GOOD[:-1], ("file-truncated",)),
    "trailing": (GOOD + b"x", ("file-trailing-bytes",)),
    "truncated in the header": (GOOD[:40], ("header-length",)),
    "short": (b"short", ("header-length",)),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 5\n", ("file-not-safetensors",)),
    "bad JSON": (file_bytes(b"{ no JSON", bytes(20)), ("header-json",)),
    "overlap": (
        file_bytes(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}', bytes(6)),
        ("offsets-overlap",),
    ),
}


@pytest.mark.parametrize(("content", "codes"), CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("route", ROUTES, ids=[route.__name__.strip("_") for route in ROUTES])
def test_every_route_has_the_verdict_of_the_path(route: Any, content: bytes, codes: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with route(path) as source:
        if codes:
            violations = refused(read_header, source, name="model.safetensors")
            assert tuple(each.code for each in violations) == codes
            assert violations == refused(read_header, path, name="model.safetensors")
        else:
            assert read_header(source, name="model.safetensors") == read_header(path, name="model.safetensors")


def test_empty_content_is_said_to_be_empty_by_every_route_that_can_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with path.open("rb") as file:
        for source in (path, file, io.BytesIO(), b"", bytearray(), memoryview(b"")):
            (violation,) = refused(read_header, source, name="model.safetensors")
            assert (violation.code, violation.object) == ("file-empty", "model.safetensors")


@pytest.mark.parametrize("route", ROUTES, ids=[route.__name__.strip("_") for route in ROUTES])
def test_an_inspection_has_one_result_by_every_route(route: Any, tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", {"a.weight": ("BF16", (3, 5)), "norm.weight": ("BF16", (5,))})
    with route(path) as source:
        inspection = inspect(source)
    assert inspection.contract == "plain.bf16@1"
    assert inspection.checkpoint is not None
    assert {name: entry.shape for name, entry in inspection.checkpoint.tensors.items()} == {"a.weight": (3, 5), "norm.weight": (5,)}


def test_reading_a_header_out_of_a_large_map_copies_no_payload(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model.safetensors", {"big": ("BF16", (1 << 15, 1 << 14))})
    with _mmap(path) as mapped:
        read_header(mapped)
        tracemalloc.start()
        try:
            read_header(mapped)
            assert tracemalloc.get_traced_memory()[1] < 200_000
        finally:
            tracemalloc.stop()

"""Files of the compile cache that are not what they should be are never loaded: their cubins are compiled again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.cubin import CubinDescription, CubinFile, cubin_from_bytes, cubin_to_bytes, read_cubin_file

from tests.kernels.support.small_sources import OTHER, PLAIN


def only_file(folder: Path) -> Path:
    """Return the only file of a folder: nothing temporary is left either."""
    (file,) = folder.iterdir()
    return file


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flip(place: Callable[[bytes], int]) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        at = place(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return spoil


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in half": _cut,
    "without its last byte": lambda data: data[:-1],
    "without its digest": lambda data: data[:-65],
    "a bit of code": _flip(lambda data: 200),
    "the first bit": _flip(lambda data: 0),
    "a bit of the description": _flip(lambda data: data.rindex(b"ahead_of_time")),
    "a bit of the digest": _flip(lambda data: len(data) - 10),
    "something behind it": lambda data: data + b"\n",
    "zeros": lambda data: bytes(len(data)),
    "text": lambda _: b"not a cubin\n" * 40,
    "a bare cubin": lambda data: data[: data.rindex(b'\n{"')],
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_file_is_built_again(spoil: Callable[[bytes], bytes], folder: Path, compiled: list[int]) -> None:
    good = find_cubin(PLAIN, 90)
    file = only_file(folder)
    data = file.read_bytes()
    file.write_bytes(spoil(data))
    assert spoil(data) != data
    again = find_cubin(PLAIN, 90)
    assert (compiled, again.origin, again.code) == ([90, 90], "compiled", good.code)
    assert find_cubin(PLAIN, 90).origin == "cache"
    assert only_file(folder).read_bytes() == data


def test_a_file_of_another_key_under_this_name_is_built_again(folder: Path, compiled: list[int]) -> None:
    """Whole and verified, and of another source, architecture or compiler."""
    good = find_cubin(PLAIN, 90)
    wrong = [Path(find_cubin(OTHER, 90).path), Path(find_cubin(PLAIN, 89).path)]
    for other in wrong:
        Path(good.path).write_bytes(other.read_bytes())
        found = find_cubin(PLAIN, 90)
        assert (found.origin, found.code) == ("compiled", good.code)
    content = read_cubin_file(Path(good.path))
    assert content is not None
    older = CubinDescription(content.description.recipe, "sm_90a", "12.8", content.description.options, False)
    Path(good.path).write_bytes(cubin_to_bytes(b"older", older))
    assert find_cubin(PLAIN, 90).code == good.code


def test_a_whole_file_reads_as_it_was_written() -> None:
    """Code may hold newlines and what looks like a description."""
    description = CubinDescription("recipe", "sm_90a", "13.5", ("-a", "-b"), True)
    for code in (b"\x7fELF", b"\n", b'\n{"recipe":"other"}\n', b"\n" * 70000, os.urandom(3000)):
        assert cubin_from_bytes(cubin_to_bytes(code, description)) == CubinFile(code, description)


def test_a_digest_does_not_make_another_json_a_description() -> None:
    right = b'{"recipe":"r","architecture":"sm_90a","nvrtc_version":"13.5","options":["-v"],"ahead_of_time":false}'
    assert with_digest(right) == CubinFile(b"code", CubinDescription("r", "sm_90a", "13.5", ("-v",), False))
    wrong = {
        "another value": b"[1]",
        "nothing in it": b"{}",
        "a field too few": right.replace(b',"ahead_of_time":false', b""),
        "a field too many": right.replace(b"}", b',"more":1}'),
        "a number for text": right.replace(b'"r"', b"1"),
        "text for options": right.replace(b'["-v"]', b'"-v"'),
        "a number among options": right.replace(b'"-v"', b'"-v",1'),
        "a number for a truth": right.replace(b"false", b"0"),
        "no JSON": b"nothing",
        "no UTF-8": right.replace(b'"r"', b'"\xff"'),
        "a byte-order mark": b"\xef\xbb\xbf" + right,
        "arrays in arrays": b"[" * 60_000,
    }
    for what, line in wrong.items():
        assert with_digest(line) is None, what


def with_digest(line: bytes) -> CubinFile | None:
    """Return what is read of a file of some code and this line, with the digest that they have."""
    content = b"code\n" + line + b"\n"
    return cubin_from_bytes(content + hashlib.sha256(content).hexdigest().encode() + b"\n")


def test_a_folder_or_a_fifo_in_the_place_of_the_file(folder: Path, compiled: list[int]) -> None:
    good = find_cubin(PLAIN, 90)
    Path(good.path).unlink()
    Path(good.path).mkdir()
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path, found.code) == ("compiled", "", good.code)
    assert found.not_kept
    assert [each.name for each in folder.iterdir()] == [Path(good.path).name]  # no temporary file is left


def test_what_is_written_is_read_back_before_it_is_renamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorhub_cuda.nvrtc import cubin as cubin_file

    monkeypatch.setattr(cubin_file, "cubin_to_bytes", lambda code, description: b"a disk that lies")
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert "reads back otherwise" in found.not_kept
    assert list(folder.iterdir()) == []

"""Files that must be refused by name, and the odd ones that must pass: Appendix S1 and group 2 of the public reports."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.header import HEADER_LENGTH_LIMIT, read_header
from tensorhub_contracts.plugins.installed import installed_registry
from tests.support.checkpoint_files import file_bytes, header_bytes, write_checkpoint, write_raw, write_sparse
from tests.support.refusals import findings, refused, refused_alone, within
from tests.support.system_calls import bytes_read, needs_proc

ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def entry(dtype: str, shape: str, begin: int, end: int) -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def header(*members: str) -> bytes:
    return ("{" + ",".join(members) + "}").encode()


def tensor(name: str, dtype: str, shape: str, begin: int, end: int) -> str:
    return f'"{name}":{entry(dtype, shape, begin, end)}'


A = tensor("a", "F32", "[1]", 0, 4)
FILE = "model.safetensors"


class Refused(NamedTuple):
    """A header and its payload's size; the one violation that must come: code, object, and words of expected and found."""

    header: bytes
    payload: int
    code: str
    object: str
    expected: str
    found: str


class Accepted(NamedTuple):
    """A header and its payload's size; the tensors that must be read from it."""

    header: bytes
    payload: int
    tensors: dict[str, tuple[str, tuple[int, ...]]]


ONE = {"a": ("F32", (1,))}

#: Appendix S1, with the rows of group 2 that say more about the same fault.
REFUSED = {
    "same name twice, different ranges": Refused(
        header(A, tensor("a", "F32", "[1]", 4, 8)), 8, "header-duplicate-key", "a", "each name once", "more than once"
    ),
    "same name twice, identical entry": Refused(header(A, A), 4, "header-duplicate-key", "a", "each name once", "more than once"),
    "dtype twice in an entry": Refused(
        header('"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}'),
        4,
        "header-duplicate-key",
        "a: dtype",
        "each field once",
        "more",
    ),
    "__metadata__ twice": Refused(
        header('"__metadata__":{}', '"__metadata__":{"k":"v"}', A),
        4,
        "header-duplicate-key",
        "__metadata__",
        "each name once",
        "more than once",
    ),
    "two tensors on the same bytes": Refused(
        header(tensor("k_proj", "F8_E4M3", "[8]", 0, 8), tensor("v_proj", "F8_E4M3", "[8]", 0, 8)),
        8,
        "offsets-overlap",
        "v_proj",
        "a begin at 8, where k_proj ends",
        "[0, 8]",
    ),
    "partial overlap": Refused(
        header(tensor("k_proj", "F8_E4M3", "[8]", 0, 8), tensor("v_proj", "F8_E4M3", "[8]", 4, 12)),
        12,
        "offsets-overlap",
        "v_proj",
        "a begin at 8, where k_proj ends",
        "[4, 12]",
    ),
    "hole between tensors": Refused(
        header(A, tensor("b", "F32", "[1]", 8, 12)), 12, "offsets-hole", "b", "a begin at 4, where a ends", "[8, 12]"
    ),
    "hole before the first tensor": Refused(
        header(tensor("a", "F32", "[1]", 4, 8)), 8, "offsets-hole", "a", "a begin at 0, where the header ends", "[4, 8]"
    ),
    "trailing bytes": Refused(
        header(A), 7, "file-trailing-bytes", FILE, f"{8 + len(header(A)) + 4} bytes", "3 more than the header describes"
    ),
    "trailing bytes after no tensor": Refused(b"{}", 1, "file-trailing-bytes", FILE, "10 bytes", "11 bytes, 1 more"),
    "reversed range": Refused(header(tensor("a", "F32", "[1]", 4, 0)), 4, "offsets-size", "a", "not before the begin", "[4, 0]"),
    "range and shape disagree": Refused(
        header(tensor("a", "F32", "[2]", 0, 4)), 4, "offsets-size", "a", "8 bytes for F32 [2]", "4 bytes at [0, 4]"
    ),
    "one byte short": Refused(header(A), 3, "file-truncated", FILE, f"{8 + len(header(A)) + 4} bytes", "a ends 1 bytes beyond"),
    "1 GB short": Refused(
        header(A, tensor("big", "F8_E4M3", "[1000000000]", 4, 1_000_000_004)),
        4,
        "file-truncated",
        FILE,
        f"{8 + len(header(A, tensor('big', 'F8_E4M3', '[1000000000]', 4, 1_000_000_004))) + 1_000_000_004:,} bytes",
        "big ends 1,000,000,000 bytes beyond",
    ),
    "truncated in the middle: the first tensor affected is named": Refused(
        header(tensor("c", "F32", "[1]", 8, 12), A, tensor("b", "F32", "[1]", 4, 8)),
        6,
        "file-truncated",
        FILE,
        "bytes",
        "b ends 2 bytes beyond",
    ),
    "metadata with a number": Refused(header('"__metadata__":{"k":0}', A), 4, "header-metadata", "__metadata__.k", "a string", "0"),
    "metadata with an object": Refused(
        header('"__metadata__":{"k":{"x":"y"}}', A), 4, "header-metadata", "__metadata__.k", "a string", "an object"
    ),
    "metadata with null": Refused(header('"__metadata__":{"k":null}', A), 4, "header-metadata", "__metadata__.k", "a string", "null"),
    "metadata that is a list": Refused(header('"__metadata__":[]', A), 4, "header-metadata", "__metadata__", "an object of strings", "[]"),
    "a tensor named __metadata__": Refused(
        header(f'"__metadata__":{ENTRY}'), 4, "header-metadata", "__metadata__", "the name is reserved", "a tensor of that name"
    ),
    "NaN in metadata": Refused(header('"__metadata__":{"k":NaN}', A), 4, "header-json", FILE, "strict UTF-8 JSON", "NaN"),
    "Infinity as a dimension": Refused(header(tensor("a", "F32", "[Infinity]", 0, 4)), 4, "header-json", FILE, "strict", "Infinity"),
    "byte-order mark": Refused(b"\xef\xbb\xbf" + header(A), 4, "header-json", FILE, "begins with '{'", r"\xef\xbb\xbf"),
    "UTF-16 with a mark": Refused(header(A).decode().encode("utf-16"), 4, "header-json", FILE, "begins with '{'", r"\xff\xfe"),
    "UTF-16 without a mark": Refused(header(A).decode().encode("utf-16-le"), 4, "header-json", FILE, "strict UTF-8 JSON", "at character 1"),
    "bytes that are not UTF-8": Refused(
        header(A).replace(b'"a"', b'"\xff"'), 4, "header-json", FILE, "strict UTF-8 JSON", "not UTF-8 at byte 2"
    ),
    "trailing NULs": Refused(header(A) + bytes(5), 4, "header-json", FILE, "strict UTF-8 JSON", f"at character {len(header(A))}"),
    "leading NULs": Refused(bytes(3) + header(A), 4, "header-json", FILE, "begins with '{'", r"\x00"),
    "only NULs": Refused(bytes(64), 4, "header-json", FILE, "begins with '{'", r"\x00"),
    "leading space": Refused(b" " + header(A), 4, "header-json", FILE, "begins with '{'", "b' {"),
    "root is a list": Refused(b"[" + header(A) + b"]", 4, "header-json", FILE, "begins with '{'", "b'[{"),
    "two roots": Refused(header(A) + header(A), 4, "header-json", FILE, "strict UTF-8 JSON", f"at character {len(header(A))}"),
    "text cut off": Refused(header(A)[:-3], 4, "header-json", FILE, "strict UTF-8 JSON", "at character"),
    "lone surrogate in a name": Refused(header(rf'"a\ud800":{ENTRY}'), 4, "header-json", r"'a\ud800'", "text", "lone surrogate"),
    "lone surrogate in a metadata key": Refused(
        header(r'"__metadata__":{"k\udc00":"v"}', A), 4, "header-json", r"'__metadata__.k\udc00'", "text", "lone surrogate"
    ),
    "lone surrogate in a metadata value": Refused(
        header(r'"__metadata__":{"k":"\udfff"}', A), 4, "header-json", "__metadata__.k", "text", "lone surrogate"
    ),
    "true as a dimension": Refused(
        header(tensor("a", "F32", "[true]", 0, 4)), 4, "header-entry", "a", "a shape of whole numbers", "[True]"
    ),
    "0.0 as an offset": Refused(
        header('"a":{"dtype":"F32","shape":[1],"data_offsets":[0.0,4]}'), 4, "header-entry", "a", "two offsets, whole numbers", "[0.0, 4]"
    ),
    "-1 as a dimension": Refused(header(tensor("a", "F32", "[-1]", 0, 4)), 4, "header-entry", "a", "a shape of whole numbers", "[-1]"),
    "-1 as an offset": Refused(header(tensor("a", "F32", "[1]", -1, 3)), 4, "header-entry", "a", "two offsets, whole numbers", "[-1, 3]"),
    "dimensions whose product is over 64 bits": Refused(
        header(tensor("a", "F32", "[4294967296,4294967296]", 0, 0)),
        0,
        "shape-overflow",
        "a",
        "fits in 64 bits",
        "F32 [4294967296, 4294967296]",
    ),
    "bits over 64 bits": Refused(
        header(tensor("a", "F64", "[288230376151711744]", 0, 0)), 0, "shape-overflow", "a", "fits in 64 bits", "F64"
    ),
    "product over 64 bits before a zero": Refused(
        header(tensor("a", "U8", "[4294967296,4294967296,0]", 0, 0)),
        0,
        "shape-overflow",
        "a",
        "fits in 64 bits",
        "U8 [4294967296, 4294967296, 0]",
    ),
    "a dimension over 64 bits": Refused(
        header(tensor("a", "U8", "[18446744073709551616]", 0, 4)), 4, "header-entry", "a", "from 0 to 2^64 - 1", "18446744073709551616"
    ),
    "an offset over 64 bits": Refused(
        header(tensor("a", "U8", "[4]", 0, 18446744073709551616)), 4, "header-entry", "a", "from 0 to 2^64 - 1", "18446744073709551616"
    ),
    "an offset near 2^64": Refused(
        header(tensor("a", "U8", "[18446744073709551615]", 0, 18446744073709551615)),
        4,
        "shape-overflow",
        "a",
        "fits in 64 bits",
        "18446744073709551615",
    ),
    "three offsets": Refused(
        header('"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}'), 4, "header-entry", "a", "two offsets", "[0, 4, 4]"
    ),
    "no shape": Refused(header('"a":{"dtype":"F32","data_offsets":[0,4]}'), 4, "header-entry", "a", "shape", "no shape"),
    "no dtype": Refused(header('"a":{"shape":[1],"data_offsets":[0,4]}'), 4, "header-entry", "a", "dtype", "no dtype"),
    "entry is null": Refused(header('"a":null'), 0, "header-entry", "a", "an object with dtype, shape and data_offsets", "null"),
    "extra field": Refused(
        header('"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"order":"F"}'), 4, "header-entry", "a", "no other", "'order'"
    ),
    "dtype unknown": Refused(header(tensor("a", "F8_E9M9", "[4]", 0, 4)), 4, "dtype-unknown", "a", "a dtype of safetensors", "F8_E9M9"),
    "dtype in lower case": Refused(header(tensor("a", "f8_e4m3", "[4]", 0, 4)), 4, "dtype-unknown", "a", "in capitals", "f8_e4m3"),
    "dtype is a number": Refused(
        header('"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}'), 4, "dtype-unknown", "a", "a dtype of safetensors", "5"
    ),
    "dtype with a letter that looks the same": Refused(
        header(tensor("a", "F3\uff12", "[1]", 0, 4)), 4, "dtype-unknown", "a", "a dtype of safetensors", "\\uff12"
    ),
    "F4 with an odd number of elements": Refused(header(tensor("a", "F4", "[3]", 0, 2)), 2, "shape-overflow", "a", "whole bytes", "F4 [3]"),
    "a number of 5000 digits": Refused(
        header(tensor("a", "F32", f"[{'9' * 5000}]", 0, 4)), 4, "header-json", FILE, "strict UTF-8 JSON", "a number of more than 40 digits"
    ),
    "200000 brackets": Refused(header(f'"a":{"[" * 200_000}'), 0, "header-json", FILE, "strict UTF-8 JSON", "nested too deeply"),
    "200000 objects": Refused(b'{"a":' * 200_000, 0, "header-json", FILE, "strict UTF-8 JSON", "nested too deeply"),
    "200000 brackets in metadata": Refused(
        header(f'"__metadata__":{{"k":{"[" * 200_000 + "]" * 200_000}}}', A),
        4,
        "header-json",
        FILE,
        "strict UTF-8 JSON",
        "nested too deeply",
    ),
}

ACCEPTED = {
    "names not in offset order": Accepted(header(tensor("b", "F32", "[1]", 4, 8), A), 8, {"b": ("F32", (1,)), "a": ("F32", (1,))}),
    "F32 at an odd offset after F8 [3]": Accepted(
        header(tensor("w", "F8_E4M3", "[3]", 0, 3), tensor("s", "F32", "[1]", 3, 7)), 7, {"w": ("F8_E4M3", (3,)), "s": ("F32", (1,))}
    ),
    "scalar": Accepted(header(tensor("s", "F32", "[]", 0, 4)), 4, {"s": ("F32", ())}),
    "metadata null": Accepted(header('"__metadata__":null', A), 4, ONE),
    "metadata {}": Accepted(header('"__metadata__":{}', A), 4, ONE),
    "no metadata": Accepted(header(A), 4, ONE),
    "metadata last": Accepted(header(A, '"__metadata__":{"format":"pt"}'), 4, ONE),
    "format mlx": Accepted(header('"__metadata__":{"format":"mlx"}', A), 4, ONE),
    "format np": Accepted(header('"__metadata__":{"format":"np"}', A), 4, ONE),
    "metadata with the field names of a tensor, all texts": Accepted(header('"__metadata__":{"dtype":"F32","shape":"[1]"}', A), 4, ONE),
    "metadata with braces and quotes": Accepted(header(r'"__metadata__":{"config":"{\"a\": [1]}"}', A), 4, ONE),
    "no tensors": Accepted(b"{}", 0, {}),
    "only metadata": Accepted(header('"__metadata__":{"format":"pt"}'), 0, {}),
    "trailing spaces": Accepted(header(A) + b"     ", 4, ONE),
    "trailing newline": Accepted(header(A) + b"\n", 4, ONE),
    "header length 5 mod 8": Accepted(header(A) + b" " * ((5 - len(header(A))) % 8), 4, ONE),
    "empty name": Accepted(header(tensor("", "F32", "[1]", 0, 4)), 4, {"": ("F32", (1,))}),
    "name with a NUL": Accepted(header(tensor(r"a\u0000", "F32", "[1]", 0, 4)), 4, {"a\0": ("F32", (1,))}),
    "name with a pair of surrogates": Accepted(header(tensor(r"\ud83d\ude00", "F32", "[1]", 0, 4)), 4, {"😀": ("F32", (1,))}),
    "F8_E4M3FNUZ": Accepted(header(tensor("a", "F8_E4M3FNUZ", "[4]", 0, 4)), 4, {"a": ("F8_E4M3FNUZ", (4,))}),
    "F8_E8M0": Accepted(header(tensor("a", "F8_E8M0", "[4]", 0, 4)), 4, {"a": ("F8_E8M0", (4,))}),
    "F4": Accepted(header(tensor("a", "F4", "[2,4]", 0, 4)), 4, {"a": ("F4", (2, 4))}),
    "F6_E2M3": Accepted(header(tensor("a", "F6_E2M3", "[4]", 0, 3)), 3, {"a": ("F6_E2M3", (4,))}),
    "a dimension of 0": Accepted(header(tensor("a", "F32", "[0,4]", 0, 0)), 0, {"a": ("F32", (0, 4))}),
    "an empty tensor at the end": Accepted(header(A, tensor("z", "F32", "[0]", 4, 4)), 4, {"a": ("F32", (1,)), "z": ("F32", (0,))}),
    "2^64 - 1 beside a zero": Accepted(
        header(tensor("a", "U8", "[0,18446744073709551615]", 0, 0)), 0, {"a": ("U8", (0, 18446744073709551615))}
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_hostile_header_is_refused_for_what_is_wrong_with_it(case: Refused, tmp_path: Path) -> None:
    path = write_raw(tmp_path / FILE, case.header, case.payload)
    violation = refused_alone(case.code, read_header, path, name=FILE)
    assert (violation.object, violation.shard) == (case.object, FILE)
    assert case.expected in violation.expected
    assert case.found in violation.found


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_an_odd_header_that_is_right_is_read(case: Accepted, tmp_path: Path) -> None:
    read = read_header(write_raw(tmp_path / FILE, case.header, case.payload))
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in read.tensors.items()} == case.tensors
    assert (read.length, read.file_size) == (len(case.header), 8 + len(case.header) + case.payload)


def test_every_fault_of_a_header_is_listed_and_not_the_first_alone(tmp_path: Path) -> None:
    raw = header(
        tensor("one", "f32", "[1]", 0, 4),
        tensor("two", "F8_E9M9", "[4]", 4, 8),
        tensor("three", "F32", "[true]", 8, 12),
        tensor("four", "F32", "[2]", 12, 16),
        '"__metadata__":{"k":0}',
        tensor("five", "F32", "[1]", 16, 20),
        tensor("five", "F32", "[1]", 16, 20),
    )
    violations = refused(read_header, write_raw(tmp_path / FILE, raw, 20))
    assert {(violation.code, violation.object) for violation in violations} == {
        ("dtype-unknown", "one"),
        ("dtype-unknown", "two"),
        ("header-entry", "three"),
        ("offsets-size", "four"),
        ("header-metadata", "__metadata__.k"),
        ("header-duplicate-key", "five"),
    }


def test_several_faults_of_one_entry_are_all_listed(tmp_path: Path) -> None:
    raw = header('"a":{"dtype":"f32","shape":[-1],"data_offsets":[0],"x":1}')
    violations = refused(read_header, write_raw(tmp_path / FILE, raw, 4))
    assert [violation.object for violation in violations] == ["a"] * 4
    assert sorted(violation.code for violation in violations) == ["dtype-unknown", "header-entry", "header-entry", "header-entry"]


def test_a_hole_and_an_overlap_elsewhere_are_both_listed(tmp_path: Path) -> None:
    raw = header(A, tensor("b", "F32", "[1]", 8, 12), tensor("c", "F32", "[1]", 10, 14), tensor("d", "F32", "[1]", 14, 18))
    violations = refused(read_header, write_raw(tmp_path / FILE, raw, 18))
    assert [(violation.code, violation.object) for violation in violations] == [("offsets-hole", "b"), ("offsets-overlap", "c")]


# The length field: B2-01, B2-02, B2-03.


@pytest.mark.parametrize(
    ("length", "payload"),
    [
        (0, 100),
        (1, 100),
        (HEADER_LENGTH_LIMIT + 1, 200_000_000),
        (132_095_296, 200_000_000),
        (101_000_000, 8),
        (2**63, 100),
        (2**64 - 1, 100),
        (5, 2),
        (101, 100),
    ],
)
def test_an_impossible_length_is_refused_with_declared_length_bound_and_file_size(length: int, payload: int, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(length.to_bytes(8, "little"))
    os.truncate(path, 8 + payload)
    violation = refused_alone("header-length", read_header, path)
    assert violation.object == FILE
    assert "100,000,000" in violation.expected
    assert f"{length:,} in a file of {8 + payload:,} bytes" in violation.found


@pytest.mark.parametrize("size", range(1, 10))
def test_a_file_that_is_too_short_for_a_header_is_refused_with_its_size(size: int, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(b"\x02"[:size] + bytes(size - 1))
    violation = refused_alone("header-length", read_header, path)
    assert f"{size} bytes in all" in violation.found


def test_an_empty_file_is_told_from_a_short_one(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.touch()
    violation = refused_alone("file-empty", read_header, path)
    assert (violation.object, violation.found) == (FILE, "0 bytes")


def test_the_bound_is_the_caller_s_to_lower(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / FILE, {"a": ("F32", (1,))})
    length = len(header_bytes({"a": ("F32", (1,))}))
    assert read_header(path, limit=length).length == length
    violation = refused_alone("header-length", read_header, path, limit=length - 1)
    assert f"2 to {length - 1:,} bytes" in violation.expected
    assert f"{length:,}" in violation.found


@pytest.mark.parametrize("length", [99_999_999, HEADER_LENGTH_LIMIT, 132_095_296, 2**40, 2**63, 2**64 - 1])
def test_refusing_a_huge_length_allocates_nothing(length: int, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(length.to_bytes(8, "little"))
    os.truncate(path, 1_000_000)
    refused_alone("header-length", read_header, path)  # imports and caches are not what is measured
    tracemalloc.start()
    try:
        refused_alone("header-length", read_header, path)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_refusing_a_huge_length_works_under_a_memory_limit(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes((2**62).to_bytes(8, "little") + b"{")
    program = (
        "import resource, sys\n"
        "from tensorhub_contracts import inspect\n"
        "inspect(sys.argv[1])\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 8_000_000, size + 8_000_000))\n"
        "print(inspect(sys.argv[1]).codes)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "('header-length',)\n"), done.stderr


@needs_proc
@pytest.mark.parametrize(
    ("first", "code"),
    [
        ((2**63).to_bytes(8, "little"), "header-length"),
        (bytes(8), "header-length"),
        (b"version https://git-lfs.github.com/spec/v1\n", "file-not-safetensors"),
        (file_bytes(b"{ no JSON"), "header-json"),
        (file_bytes(b'{"a":' + entry("F32", "[1]", 0, 4).encode() + b"}"), "file-trailing-bytes"),
    ],
    ids=["huge length", "zero length", "LFS pointer", "bad JSON", "trailing bytes"],
)
def test_refusing_a_sparse_file_of_8_gib_reads_a_few_bytes(first: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(first)
    os.truncate(path, 8 << 30)
    assert inspect(path).codes == (code,)
    with bytes_read() as look:
        installed_registry()  # reads the metadata of distributions, to see whether there are plugins
    with bytes_read() as read:
        inspect(path)
    assert read.count - look.count <= max(64, len(first))


# What the file is instead: B2-04.

KINDS = {
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 16060522240\n", "Git LFS pointer"),
    "HTML page": (b"<!DOCTYPE html>\n<html><body>404</body></html>", "HTML page"),
    "HTML page in capitals": (b'<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">\n<html><head>', "HTML page"),
    "HTML page without doctype": (b"<html>\n<head><title>504 Gateway Time-out</title></head>\n</html>", "HTML page"),
    "HTML page after a line break": (b"\n\n<!doctype html><html lang=en>", "HTML page"),
    "XML": (b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>', "XML"),
    "pickle, protocol 2": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "pickle"),
    "pickle, protocol 4": (b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.\x00\x00\x00", "pickle"),
    "pickle, protocol 5": (b"\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.\x00\x00\x00", "pickle"),
    "zip": (b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00archive/data.pkl", "zip archive"),
    "GGUF": (b"GGUF\x03\x00\x00\x00\x23\x01\x00\x00\x00\x00\x00\x00", "GGUF"),
    "JSON without the length": (b'{"error": "Entry not found", "status": 404}', "JSON"),
    "an index under a shard's name": (b'{\n  "metadata": {"total_size": 1},\n  "weight_map": {}\n}', "JSON"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03KL\x02\x00", "gzip"),
    "NumPy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}", "NumPy"),
}


@pytest.mark.parametrize(("content", "kind"), KINDS.values(), ids=KINDS)
def test_a_file_of_another_kind_is_refused_with_the_kind_and_its_size(content: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    violation = refused_alone("file-not-safetensors", read_header, path)
    assert violation.object == FILE
    assert kind in violation.found
    assert f"{len(content)} bytes" in violation.found


def test_a_pickle_that_would_run_code_is_never_opened(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / FILE
    path.write_bytes(b"\x80\x02c" + b"posix\nsystem\n" + f"X{chr(0) * 4}".encode() + f"touch {witness}".encode() + b"\x85R.")
    assert inspect(path.parent).codes == ("file-not-safetensors",)
    assert not witness.exists()


# What lies at the path is not a file, or cannot be read.


def test_a_named_pipe_as_a_shard_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    for source in (tmp_path / FILE, tmp_path):
        with within(5):
            inspection = inspect(source)
        (violation,) = inspection.violations
        assert (violation.code, violation.object, violation.found) == ("file-unreadable", FILE, "a named pipe")


def test_a_folder_as_a_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    violation = refused_alone("file-unreadable", read_header, tmp_path / FILE)
    assert (violation.object, violation.expected, violation.found) == (FILE, "a regular file", "a folder")
    assert findings(inspect(tmp_path)) == {("file-unreadable", FILE)}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_device_as_a_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/zero")
    with within(5):
        violation = refused_alone("file-unreadable", read_header, tmp_path / FILE)
    assert (violation.object, violation.found) == (FILE, "a device")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / FILE, {"a": ("F32", (1,))})
    path.chmod(0)
    violation = refused_alone("file-unreadable", read_header, path)
    assert (violation.object, violation.found) == (FILE, "Permission denied")


@pytest.mark.parametrize(("function", "number"), [("open", errno.EACCES), ("pread", errno.EIO), ("pread", errno.ESTALE)])
def test_an_error_of_the_operating_system_is_a_refusal_that_names_it(
    function: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sparse(tmp_path / FILE, {"a": ("F32", (1,))})

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        violation = refused_alone("file-unreadable", read_header, path)
    assert (violation.object, violation.found) == (FILE, os.strerror(number))


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sparse(tmp_path / FILE, {"a": ("F32", (1,))})
    whole = os.pread

    def shortened(descriptor: int, count: int, offset: int) -> bytes:
        return whole(descriptor, count, offset)[:20] if offset < 20 else b""

    monkeypatch.setattr(os, "pread", shortened)
    assert {violation.code for violation in refused(read_header, path)} <= {
        "header-json",
        "header-length",
        "file-truncated",
        "file-unreadable",
    }


# What the layout part says of files whose container is right: B2-12, B2-14, B2-25.


@pytest.mark.parametrize("raw", [b"{}", b'{"__metadata__":{"format":"pt"}}'], ids=["empty", "only metadata"])
def test_a_file_without_tensors_is_in_no_contract(raw: bytes, tmp_path: Path) -> None:
    inspection = inspect(write_raw(tmp_path / FILE, raw, 0))
    assert inspection.contract is None
    assert inspection.codes == ("no-tensors",)


@pytest.mark.parametrize("dtype", ["F8_E4M3FNUZ", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3"])
def test_a_foreign_dtype_is_never_taken_for_e4m3(dtype: str, tmp_path: Path) -> None:
    tensors = {"layer.weight": (dtype, (256, 384)), "layer.weight_scale_inv": ("F32", (2, 3))}
    config = {
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    }
    inspection = inspect(write_checkpoint(tmp_path, tensors, config=config), contract="hf.fp8-blockwise@1")
    assert inspection.contract is None
    of_the_weight = [violation for violation in inspection.violations if violation.object == "layer.weight"]
    assert of_the_weight, findings(inspection)
    assert of_the_weight[0].code == "weight-dtype"
    assert dtype in of_the_weight[0].found
    assert "F8_E4M3" in of_the_weight[0].expected


@pytest.mark.parametrize("shape", [(), (1,)], ids=["[]", "[1]"])
def test_a_scale_for_the_whole_tensor_is_called_that_whether_it_is_a_scalar_or_has_one_element(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    tensors = {"layer.weight": ("F8_E4M3", (256, 384)), "layer.weight_scale": ("F32", shape)}
    inspection = inspect(write_checkpoint(tmp_path, tensors))
    assert inspection.contract is None
    said = " ".join(map(str, inspection.violations))
    assert "per-tensor" in said or "per tensor" in said or "whole tensor" in said, said
    rowwise = inspect(tmp_path, contract="cozy.fp8-rowwise@1")
    assert rowwise.contract is None
    assert {code for code, name in findings(rowwise) if name == "layer.weight_scale"} & {"scale-rank", "scale-grid"}


@pytest.mark.parametrize("name", ["a\0b.safetensors", "a\udcff\ud800.safetensors"], ids=["nul", "surrogate"])
def test_a_path_that_no_file_can_have_is_where_nothing_lies(tmp_path: Path, name: str) -> None:
    violation = refused_alone("file-missing", read_header, f"{tmp_path}/{name}", name="the shard")
    assert violation.found.startswith("a path that no file can have: ")


@pytest.mark.parametrize("raw", [b'{"__metadata__":{"a":"b"', b'{"__metadata__":{', b'{"__metadata__":{"a":"b",'])
def test_metadata_that_nothing_closes_is_refused(raw: bytes) -> None:
    assert refused_alone("header-json", read_header, file_bytes(raw)).object


@pytest.mark.parametrize(("size", "cut"), [(78, False), (79, True), (1000, True)])
def test_what_was_found_is_shown_from_its_beginning_and_in_eighty_characters(size: int, cut: bool) -> None:
    text = ("abcdefghij" * 100)[:size]
    raw = header(f'"w":{{"dtype":"F32","shape":"{text}","data_offsets":[0,4]}}')
    found = refused_alone("header-entry", read_header, file_bytes(raw, bytes(4))).found
    assert found == (f"'{text[:76]}..." if cut else f"'{text}'")

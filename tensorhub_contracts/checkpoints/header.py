"""The one reader of safetensors headers: bounded, strict, and fast on the files that writers really write.

A file is 8 bytes of little-endian length, that many bytes of UTF-8 JSON, and the payload. Reading a header reads
8 + length bytes and nothing else, keeps no descriptor open and maps nothing.

Two paths, one verdict. The fast path only ever accepts: a typed decode, three counts that exclude repeated keys, and a
walk over the offsets. Whatever it cannot accept goes to `header_diagnosis`, which decides and lists everything wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from mmap import mmap
from operator import attrgetter
from typing import BinaryIO, Final

import msgspec

from tensorhub_contracts.checkpoints.files import open_regular, unreadable
from tensorhub_contracts.checkpoints.geometry import Geometries, Geometry, TensorEntry
from tensorhub_contracts.checkpoints.paths import last_name
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import is_text

#: The bound of safetensors itself: a longer header is refused before anything is allocated.
HEADER_LENGTH_LIMIT: Final = 100_000_000


class Header(msgspec.Struct, frozen=True):
    """What a file's header says, proved consistent: entries tile the payload, and the payload fills the file.

    `geometries` holds the geometry of each tensor, in the order of `tensors`. `raw` is the header as it lies in the
    file, `length` its size in bytes, `file_size` the size of the whole file.
    """

    file_size: int
    length: int
    tensors: Mapping[str, TensorEntry]
    geometries: Sequence[Geometry]
    metadata: Mapping[str, str]
    raw: bytes

    def holding(self, tensors: Mapping[str, TensorEntry], geometries: Sequence[Geometry]) -> Header:
        """Return a header that names these of the tensors alone; what says where they lie in the file is the same."""
        return msgspec.structs.replace(self, tensors=tensors, geometries=geometries)


#: What a header can be read from: a path, an open binary file, or the bytes of a file (bytes, memoryview, mmap).
Source = str | os.PathLike[str] | BinaryIO | bytes | bytearray | memoryview | mmap


_entries = msgspec.json.Decoder(dict[str, TensorEntry])
_metadata = msgspec.json.Decoder(dict[str, str])


def read_header(source: Source, *, name: str = "", limit: int = HEADER_LENGTH_LIMIT) -> Header:
    """Read one file's header and prove it consistent.

    `name` is how messages call the file; by default the path as it was given. Raises `Refusal` with every violation
    of the file. At least as strict as safetensors 0.8: duplicate keys, NaN literals, booleans as numbers, sizes over
    64 bits, holes, overlaps and trailing bytes are refused. Raises TypeError for a source of another kind.
    """
    if isinstance(source, str | os.PathLike):
        return _read_path(os.fspath(source), name or str(source), limit)
    if isinstance(source, bytes | bytearray | memoryview | mmap):
        return _read_buffer(source, name or "(bytes)", limit)
    if not (hasattr(source, "read") and hasattr(source, "seek")):
        raise TypeError(f"source: a path, an open binary file, or the bytes of a file, not {type(source).__name__}")
    name = name or str(getattr(source, "name", "(file object)"))
    file_size = source.seek(0, os.SEEK_END)
    source.seek(0)
    length = _declared_length(_read_all(source.read, 8), file_size, name, limit, source.read)
    source.seek(8)
    return parse_header(_read_all(source.read, length), file_size=file_size, name=name)


def _read_all(read: Callable[[int], bytes], count: int) -> bytes:
    """Read `count` bytes from a source that may give fewer at a time, or what there is before its end."""
    data = read(count)
    while len(data) < count and (more := read(count - len(data))):
        data += more
    return data


def _read_buffer(source: bytes | bytearray | memoryview | mmap, name: str, limit: int) -> Header:
    with memoryview(source) as view:
        length = _declared_length(bytes(view[:512]), len(view), name, limit)
        return parse_header(bytes(view[8 : 8 + length]), file_size=len(view), name=name)


def _read_path(path: str, name: str, limit: int) -> Header:
    """Read 8 + length bytes with exact positioned reads; read-ahead would pull megabytes around each header."""
    descriptor, size = open_regular(path, name=name)
    position = 0

    def read(count: int) -> bytes:
        nonlocal position
        data = os.pread(descriptor, count, position)
        position += len(data)
        return data

    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        length = _declared_length(_read_all(read, 8), size, name, limit, read)
        raw = _read_all(read, length)
    except OSError as error:
        raise unreadable(path, error, name=name) from error
    finally:
        os.close(descriptor)
    return parse_header(raw, file_size=size, name=name)


def parse_header(raw: bytes, *, file_size: int, name: str) -> Header:
    """Parse the JSON of a header that was read from a file of `file_size` bytes; raise `Refusal` with what is wrong."""
    decoded = _decode_fast(raw)
    geometries = _geometries_of(decoded[0].values()) if decoded is not None else []
    if decoded is None or not _tiles(decoded[0].values(), geometries, file_size - 8 - len(raw)):
        from tensorhub_contracts.checkpoints.header_diagnosis import diagnose_header  # only for files that the fast path declines

        decoded = diagnose_header(raw, file_size=file_size, name=name, decoded=decoded)
        geometries = _geometries_of(decoded[0].values())
    tensors, metadata = decoded
    return Header(file_size, len(raw), tensors, geometries, metadata, raw)


def _decode_fast(raw: bytes) -> tuple[dict[str, TensorEntry], dict[str, str]] | None:
    """Return entries and metadata if the text is certainly right, else None. Never refuses, so it never explains.

    Each key of the text brings a colon, and so may a text. The decoder keeps the last of repeated keys and demands three
    fields an entry: with exactly four colons for each name that is left, none was repeated at either level.
    """
    if raw[:1] != b"{" or (b"-" in raw and b"-0" in raw):  # -0 is no size, and the decoder takes it for 0
        return None
    metadata: dict[str, str] = {}
    body = raw
    try:
        if raw.startswith(b'{"__metadata__":{'):
            end = raw.index(b"}") + 1
            metadata = _metadata.decode(raw[16:end])
            if raw[16:end].count(b'"') != 4 * len(metadata):  # a repeated key: its quotes are there, its entry is not
                return None
            if raw[end : end + 2] == b',"':
                body = b"".join((b"{", memoryview(raw)[end + 1 :]))
            elif raw[end:].strip(b" ") == b"}":
                return ({}, metadata) if b"\\" not in raw else None
            else:
                return None
        tensors = _entries.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if "__metadata__" in tensors or not _all_once(body, tensors) or (b"\\" in raw and not _spelled(raw, metadata, tensors)):
        return None
    return tensors, metadata


def _all_once(body: bytes, tensors: Mapping[str, TensorEntry]) -> bool:
    """Whether the text has one colon for each name and each of three fields, beside those that are part of a name."""
    colons = body.count(b":") - 4 * len(tensors)
    return colons == 0 or (colons > 0 and b"\\" not in body and colons == sum(name.count(":") for name in tensors))


def _spelled(raw: bytes, metadata: Mapping[str, str], tensors: Mapping[str, TensorEntry]) -> bool:
    """Whether what escapes stand for is text: in names alone, where it can be counted on."""
    return not metadata and is_text("".join(tensors))


_geometries = Geometries()
_offsets = attrgetter("data_offsets")
_dtype_and_shape = attrgetter("dtype", "shape")


def _geometries_of(entries: Iterable[TensorEntry]) -> list[Geometry]:
    if len(_geometries) > 100_000:  # a process that inspects very many different checkpoints does not grow without bound
        _geometries.clear()
    return list(map(_geometries.__getitem__, map(_dtype_and_shape, entries)))


def _tiles(entries: Iterable[TensorEntry], geometries: list[Geometry], payload_size: int) -> bool:
    """Whether the tensors fill the payload without holes or overlaps, each with the bytes that its geometry takes."""
    lengths = [geometry.byte_length for geometry in geometries]
    offsets = list(map(_offsets, entries))
    if _tiles_in_order(offsets, lengths, payload_size):
        return True
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    return _tiles_in_order([offsets[each] for each in order], [lengths[each] for each in order], payload_size)


def _tiles_in_order(offsets: list[tuple[int, int]], lengths: list[int | None], payload_size: int) -> bool:
    """Compare whole columns: running totals of the byte lengths are the edges between tensors."""
    try:
        edges: list[int] = list(accumulate(lengths, initial=0))  # type: ignore[arg-type]  # None is what is caught
    except TypeError:  # a geometry that no file can hold
        return False
    return edges[-1] == payload_size and offsets == list(pairwise(edges))


_DOWNLOAD = "Download the file again and compare its size with the one that its source states."


def _declared_length(first: bytes, file_size: int, name: str, limit: int, read_more: Callable[[int], bytes] | None = None) -> int:
    """Return the header length that the first 8 bytes declare, judged against the file before anything is allocated."""
    if file_size == 0:
        raise Refusal([_violation("file-empty", name, "a safetensors file", "0 bytes", _DOWNLOAD)])
    length = int.from_bytes(first[:8], "little")
    if 2 <= length <= limit and length <= file_size - 8 and file_size >= 10:
        return length
    from tensorhub_contracts.checkpoints.file_kinds import LONG_SAMPLE, SAMPLE, may_begin_with_a_name, recognize  # only for such files

    sample = first if read_more is None else first + _read_all(read_more, SAMPLE - len(first))
    kind = recognize(sample)
    if kind is None and read_more is not None and may_begin_with_a_name(first):
        kind = recognize(sample + _read_all(read_more, LONG_SAMPLE - len(sample)))
    if kind is not None:
        found = f"{kind.words} ({file_size:,} bytes)"
        raise Refusal([_violation("file-not-safetensors", name, "a safetensors file", found, kind.remedy)])
    found = f"{file_size} bytes in all" if file_size < 10 else f"a declared header length of {length:,} in a file of {file_size:,} bytes"
    expected = f"8 bytes of length, then a header of 2 to {limit:,} bytes that lies inside the file"
    raise Refusal([_violation("header-length", name, expected, found, _DOWNLOAD)])


def _violation(code: str, name: str, expected: str, found: str, remedy: str) -> Violation:
    return Violation(code=code, object=last_name(name), expected=expected, found=found, remedy=remedy, shard=name)

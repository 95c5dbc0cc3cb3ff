"""Recognizes what a file is when it is not safetensors, from its first bytes or from its name, and says what to do then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from tensorhub_contracts.readable import Readable

#: How many first bytes say it: those of a tar archive begin with a name, and its mark comes after that.
SAMPLE: Final = 64
LONG_SAMPLE: Final = 512


@attrs.frozen(slots=False, repr=False)
class FileKind(Readable):
    """A kind of files, in words, and what to do with one."""

    words: str
    remedy: str


_PICKLED = "Convert the weights to safetensors where they were made: a pickle can run code when it is opened, and is never opened here."
_CONVERT = "Convert the weights to safetensors where they were made, or take an export that has them."
_UNPACK = "Unpack the archive, and point at the .safetensors files that were in it."
_PAGE = "Download the file again: log in to the hub first, and accept the terms of the model if it has some."

_LFS = FileKind(
    "a Git LFS pointer: the file it points to was not downloaded", "Run `git lfs pull` in the clone, or download the file itself."
)
_ZIP = FileKind("a zip archive, which is how PyTorch saves pickles; it is never opened", _PICKLED)
_PICKLE = FileKind("a pickle; it is never opened", _PICKLED)
_GGUF = FileKind("a GGUF file", "Take the original in safetensors, or install a plugin whose command reads GGUF: no contract is about it.")
_GGML = FileKind("a GGML file", "Take the original in safetensors: no contract is about GGML.")
_NUMPY = FileKind("a NumPy array", _CONVERT)
_HDF5 = FileKind("an HDF5 file", _CONVERT)
_ONNX = FileKind("an ONNX model", _CONVERT)
_FLAX = FileKind("Flax weights", _CONVERT)
_ARCHIVE = FileKind("an archive", _UNPACK)
_TAR = FileKind("a tar archive", _UNPACK)
_HTML = FileKind("an HTML page, probably a login or error page saved in place of the file", _PAGE)
_XML = FileKind("an XML document, probably an error page saved in place of the file", _PAGE)
_JSON = FileKind(
    "JSON text without the 8-byte length that a safetensors file begins with",
    "Name a .safetensors file, or the folder that holds it with its configuration; "
    "if the file bears the name of a shard, download the shard again.",
)

_MAGICS: Final = (
    (b"version https://git-lfs", _LFS),
    (b"PK\x03\x04", _ZIP),
    *((b"\x80" + bytes([protocol]), _PICKLE) for protocol in (2, 3, 4, 5)),
    (b"GGUF", _GGUF),
    (b"GGML", _GGML),
    (b"\x93NUMPY", _NUMPY),
    (b"\x89HDF", _HDF5),
    (b"\x1f\x8b", FileKind("a gzip archive", _UNPACK)),
    (b"BZh", FileKind("a bzip2 archive", _UNPACK)),
    (b"(\xb5/\xfd", FileKind("a Zstandard archive", _UNPACK)),
    (b"\xfd7zXZ\x00", FileKind("an xz archive", _UNPACK)),
    (b"7z\xbc\xaf", FileKind("a 7z archive", _UNPACK)),
    (b"\x7fELF", FileKind("an ELF binary", "Point at the weights: this is a program.")),
)
_TAR_MARK: Final = slice(257, 262)

_ENDINGS: Final = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"), _PICKLE),
    ".gguf": _GGUF,
    ".ggml": _GGML,
    ".msgpack": _FLAX,
    **dict.fromkeys((".h5", ".hdf5"), _HDF5),
    ".onnx": _ONNX,
    ".tflite": FileKind("a TFLite model", _CONVERT),
    **dict.fromkeys((".npz", ".npy"), _NUMPY),
    **dict.fromkeys((".zip", ".tar", ".gz", ".tgz", ".zst", ".7z", ".xz"), _ARCHIVE),
}


def recognize(first_bytes: bytes) -> FileKind | None:
    """Return what the file is, or None if its first bytes say nothing."""
    for magic, kind in _MAGICS:
        if first_bytes.startswith(magic):
            return kind
    if first_bytes[_TAR_MARK] == b"ustar":
        return _TAR
    text = first_bytes.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return _HTML
    if text.startswith(b"<?xml"):
        return _XML
    if first_bytes[:1] == b"{":
        return _JSON
    # A model of ONNX begins with its version, in field 1 (versions so far are below 16), and its producer's name in field 2.
    if first_bytes[:1] == b"\x08" and first_bytes[2:3] == b"\x12" and 1 <= first_bytes[1] <= 31:
        return _ONNX
    return None


def may_begin_with_a_name(first_bytes: bytes) -> bool:
    """Whether a file may be an archive that begins with the name of what is in it: printable text, filled up with zeros."""
    name = first_bytes[:8].rstrip(b"\0")
    return bool(name) and name.isascii() and name.decode("ascii").isprintable()


def kind_by_name(name: str) -> FileKind | None:
    """Return what a file's name says that it is, or None: a name that no weights have."""
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def remedies(kinds: Iterable[FileKind]) -> str:
    """Return what to do with files of several kinds, each sentence once."""
    return " ".join(dict.fromkeys(kind.remedy for kind in kinds))

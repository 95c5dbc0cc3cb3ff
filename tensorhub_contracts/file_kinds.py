"""Recognizes what a file is when it is not safetensors, from its first bytes."""

from __future__ import annotations

from typing import Final

_MAGICS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer: the file it points to was not downloaded"),
    (b"PK\x03\x04", "a zip archive, which is how PyTorch saves pickles; it is never opened"),
    (b"\x80\x02", "a pickle; it is never opened"),
    (b"\x80\x03", "a pickle; it is never opened"),
    (b"\x80\x04", "a pickle; it is never opened"),
    (b"\x80\x05", "a pickle; it is never opened"),
    (b"GGUF", "a GGUF file"),
    (b"GGML", "a GGML file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"(\xb5/\xfd", "a Zstandard archive"),
    (b"\x7fELF", "an ELF binary"),
)


def recognize(first_bytes: bytes) -> str:
    """Return what the file is, in words, or an empty string if its first bytes say nothing."""
    for magic, kind in _MAGICS:
        if first_bytes.startswith(magic):
            return kind
    text = first_bytes.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, probably an error page saved in place of the file"
    if text.startswith(b"<?xml"):
        return "an XML document, probably an error page saved in place of the file"
    if first_bytes[:1] == b"{":
        return "JSON text without the 8-byte length that a safetensors file begins with"
    return ""

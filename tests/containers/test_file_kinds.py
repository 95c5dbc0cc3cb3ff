"""Each foreign format has its own remedy, in place of weights and beside them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from tensorhub_decoders.converting.companion_files import companion_files

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.header import read_header
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import write_checkpoint
from tests.support.refusals import refused_alone

FILE = "model.safetensors"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 16060522240\n"


def tar_archive(member: str = "model.safetensors") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo(member)
        info.size = 4
        archive.addfile(info, io.BytesIO(b"abcd"))
    return file.getvalue()


KINDS = {
    "LFS pointer": (LFS, "Git LFS pointer", "git lfs pull"),
    "GGUF": (b"GGUF\x03\x00\x00\x00\x23\x01\x00\x00\x00\x00\x00\x00", "GGUF", "original in safetensors"),
    "pickle": (b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.\x00\x00\x00", "a pickle", "where they were made"),
    "zip": (b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00archive/data.pkl", "zip", "where they were made"),
    "HTML": (b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "HTML page", "log in"),
    "tar": (tar_archive(), "tar archive", "Unpack"),
    "tar of a short name": (tar_archive("a.pt"), "tar archive", "Unpack"),
    "NumPy": (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}", "NumPy", "Convert"),
    "ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x80\x10", "ONNX", "Convert"),
    "JSON": (b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', "JSON text", "folder that holds it"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03KL\x02\x00", "gzip", "Unpack"),
}


@pytest.mark.parametrize(("content", "kind", "remedy"), KINDS.values(), ids=KINDS)
def test_the_remedy_is_that_of_the_kind(content: bytes, kind: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    for source in (tmp_path / FILE, content):
        violation = refused_alone("file-not-safetensors", read_header, source)
        assert kind in violation.found
        assert remedy in violation.remedy
        assert ("pickle" in violation.remedy) == (kind in ("a pickle", "zip"))
    assert inspect(tmp_path).codes == ("file-not-safetensors",)


@pytest.mark.parametrize("content", [b"\x08\x00\x00\x00\x00\x00\x00\x80", b"abcdefgh" * 100, bytes(2000)])
def test_what_no_kind_fits_is_a_header_of_impossible_length(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    refused_alone("header-length", read_header, tmp_path / FILE)


@pytest.mark.parametrize(
    ("names", "said", "unsaid"),
    [
        (["model-Q4_K_M.gguf"], ("GGUF",), ("pickle",)),
        (["pytorch_model.bin"], ("pickle",), ("GGUF",)),
        (["model.onnx"], ("Convert",), ("pickle", "GGUF")),
        (["model.tar.gz"], ("Unpack",), ("pickle", "GGUF")),
        (["model.bin", "model.gguf"], ("pickle", "GGUF"), ()),
        (["flax_model.msgpack", "tf_model.h5"], ("Convert",), ("pickle", "GGUF")),
    ],
)
def test_in_place_of_weights_the_remedy_is_by_kind(
    names: list[str], said: tuple[str, ...], unsaid: tuple[str, ...], tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert all(name in violation.found for name in names)
    assert all(word in violation.remedy for word in said)
    assert not any(word in violation.remedy for word in unsaid)


def test_an_index_that_is_a_pointer_has_the_remedy_of_a_pointer(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.index.json").write_bytes(LFS)
    violation = refused_alone("index-json", read_checkpoint, tmp_path)
    assert "Git LFS pointer" in violation.found
    assert "git lfs pull" in violation.remedy


def test_what_a_conversion_leaves_out_is_called_what_it_is(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path, {"a.weight": ("BF16", (4, 4))}))
    for name in ("model.gguf", "pytorch_model.bin", "model.onnx", "other.safetensors"):
        (tmp_path / name).write_bytes(b"")
    left = dict(companion_files(checkpoint, {}).left)
    assert left == {
        "model.gguf": "a GGUF file",
        "pytorch_model.bin": "a pickle; it is never opened",
        "model.onnx": "an ONNX model",
        "other.safetensors": "other weights",
    }

"""Reading, writing and verifying the oracle's files: safetensors files beside a manifest of their SHA-256 digests. Needs numpy alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "fixtures"
MANIFEST = Path(__file__).with_name("manifest.json")

#: What holds the elements of a dtype in numpy: codes of F8_E4M3 as bytes, the bits of BF16 as 16-bit integers.
_NUMPY = {"F8_E4M3": np.uint8, "BF16": np.uint16, "F32": np.float32, "F64": np.float64, "I32": np.int32}

#: A tensor as it is stored: the name of its dtype, and its elements in what numpy has for them.
Tensor = tuple[str, NDArray[Any]]


class FixtureError(Exception):
    """A fixture is not what the manifest says; `violations` names every file that differs and how."""

    def __init__(self, violations: tuple[str, ...]) -> None:
        self.violations = violations
        super().__init__("; ".join(violations))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, the tensors in the order given, each right after the one before."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, (dtype, array) in tensors.items():
        if array.dtype != _NUMPY[dtype]:
            raise TypeError(f"{name}: {dtype} is held in {_NUMPY[dtype].__name__}, not in {array.dtype}")
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    payload = b"".join(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes() for _, array in tensors.values())
    path.write_bytes(len(header).to_bytes(8, "little") + header + payload)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Read a file that `write_tensors` wrote; codes come as bytes and BF16 as 16 bits, as they are stored."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(content[start + begin : start + end], _NUMPY[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


def describe_files(folder: Path) -> list[dict[str, Any]]:
    """Return path, bytes and SHA-256 of every file in a folder, by name."""
    return [
        {"path": path.name, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(folder.iterdir())
    ]


def read_manifest(path: Path = MANIFEST) -> dict[str, Any]:
    """Return the manifest."""
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest


def verify_files(manifest: Mapping[str, Any], folder: Path = FOLDER) -> int:
    """Compare every file with the manifest and return their number; raises FixtureError that names all that differ."""
    violations = []
    found = {entry["path"]: entry for entry in describe_files(folder)} if folder.is_dir() else {}
    for expected in manifest["files"]:
        entry = found.pop(expected["path"], None)
        if entry is None:
            violations.append(f"{expected['path']}: the file is missing")
        elif entry["bytes"] != expected["bytes"]:
            violations.append(f"{expected['path']}: {entry['bytes']} bytes, the manifest says {expected['bytes']}")
        elif entry["sha256"] != expected["sha256"]:
            violations.append(f"{expected['path']}: SHA-256 {entry['sha256']}, the manifest says {expected['sha256']}")
    violations += [f"{name}: a file that the manifest does not know" for name in found]
    if violations:
        raise FixtureError(tuple(violations))
    return len(manifest["files"])

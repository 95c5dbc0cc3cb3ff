"""The files of a checkpoint beside its weights: which of them belong to a converted one, and which do not."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from tensorhub_contracts.checkpoint import Checkpoint
from tensorhub_contracts.file_kinds import recognize

#: Larger files are weights in some form, or nothing that a model needs to be loaded.
SIZE_LIMIT: Final = 64_000_000

_INDEXES: Final = ".index.json"
_WEIGHTS: Final = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib",
    ".gguf", ".msgpack", ".h5", ".onnx", ".npy", ".npz", ".tflite",
)  # fmt: skip  # one line for each kind reads worse


class CompanionFiles(msgspec.Struct, frozen=True):
    """The files that are copied, by name, and those that are not, each with the reason."""

    copied: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


def companion_files(checkpoint: Checkpoint) -> CompanionFiles:
    """Sort the files that lie beside the shards, without `config.json`, the shards themselves and their index.

    Folders, weights in any format, pickles under any name and files from 64 MB on are not copied. Beside a checkpoint
    that is a single file named by its path, only `config.json` is known to belong to it.
    """
    folder = folder_of(checkpoint)
    own = {*checkpoint.headers, checkpoint.index_name, "config.json"}
    if not Path(checkpoint.path).is_dir():
        return CompanionFiles((), ())
    copied, left = [], []
    for name in sorted(os.listdir(folder)):
        if name in own:
            continue
        reason = _reason(folder / name)
        if reason:
            left.append((name, reason))
        else:
            copied.append(name)
    return CompanionFiles(tuple(copied), tuple(left))


def folder_of(checkpoint: Checkpoint) -> Path:
    """Return the folder that the shards lie in."""
    path = Path(checkpoint.path)
    return path / checkpoint.component if path.is_dir() else path.parent


def _reason(path: Path) -> str:
    """Return why a file is not copied, or nothing if it is."""
    try:
        status = path.stat()
    except OSError as error:
        return error.strerror or "unreadable"
    if not stat.S_ISREG(status.st_mode):
        return "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
    if path.name.endswith(_INDEXES):
        return "the index of other weights"
    if path.name.lower().endswith(_WEIGHTS):
        return "weights, or a pickle"
    if status.st_size >= SIZE_LIMIT:
        return f"{status.st_size:,} bytes"
    with path.open("rb") as file:
        kind = recognize(file.read(64))
    return kind if "pickle" in kind else ""

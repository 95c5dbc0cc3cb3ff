"""The files beside the weights that are converted: which of them belong to the result, and which do not.

Of a pipeline, of which one component is converted, these are the other components, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.file_kinds import SAMPLE, kind_by_name, recognize
from tensorhub_contracts.checkpoints.files import exists_or_dangles, list_folder, open_file
from tensorhub_contracts.checkpoints.pipeline import component_folder, weight_components
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tensorhub_contracts.errors import Refusal, Violation

#: Larger files are weights in some form, or nothing that a model needs to be loaded.
SIZE_LIMIT: Final = 64_000_000

#: The list of a pipeline's components; written last, because without it there is no pipeline.
MODEL_INDEX: Final = "model_index.json"

_INDEXES: Final = ".index.json"
_WEIGHTS: Final = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib",
    ".gguf", ".msgpack", ".h5", ".onnx", ".npy", ".npz", ".tflite",
)  # fmt: skip  # one line for each kind reads worse


#: The other components of a pipeline by name; None for one that holds no weights, such as a tokenizer.
Others = Mapping[str, Checkpoint | None]


@attrs.frozen
class CompanionFiles:
    """What becomes of the files beside the weights, by their paths below SRC and DST."""

    #: Those that are copied.
    copied: tuple[str, ...]
    #: Those that are not, each with the reason.
    left: tuple[tuple[str, str], ...]


def companion_files(checkpoint: Checkpoint, others: Others, outdated: Collection[str] = ()) -> CompanionFiles:
    """Sort the files that lie beside the shards, without `config.json`, the shards themselves and their index.

    Folders, weights in any format, pickles under any name and files from 64 MB on are not copied. Beside a checkpoint
    that is a single file named by its path, only `config.json` is known to belong to it. Nor are those copied that are
    `outdated`: they declare a layout that the result is not in. If a component is converted,
    the files in the root of its pipeline and in `others` are sorted by the same rule; their shards are not in the result.
    Raises `Refusal` (`companion-outside`) for links that leave the tree, see `require_inside`.
    """
    if not Path(checkpoint.path).is_dir():
        require_inside(checkpoint, ["config.json"])
        return CompanionFiles((), ())
    found = _all_companions(checkpoint, others, outdated)
    require_inside(checkpoint, [*found.copied, f"{checkpoint.component}/config.json" if checkpoint.component else "config.json"])
    return found


def _all_companions(checkpoint: Checkpoint, others: Others, outdated: Collection[str]) -> CompanionFiles:
    own = {*checkpoint.headers, checkpoint.index_name, "config.json"}
    if not checkpoint.component:
        return _sorted(folder_of(checkpoint), "", own, outdated=outdated)
    root = Path(checkpoint.path)
    sorted_files = [
        _sorted(root, "", {checkpoint.component, *others}),
        _sorted(folder_of(checkpoint), checkpoint.component, own, outdated=outdated),
    ]
    for name, other in others.items():
        headers, index = ((), "") if other is None else (other.headers, other.index_name)
        sorted_files.append(_sorted(root / name, name, headers, index))
    return _joined(sorted_files)


def other_components(checkpoint: Checkpoint) -> Others:
    """Read the headers of the other components of a pipeline; there are none if no component is converted.

    The components are the folders that `model_index.json` lists. Whatever layout they are in, they are copied. Raises
    `Refusal` with everything that is missing or broken in them: what is written would not be a whole pipeline.
    """
    root, own = Path(checkpoint.path), checkpoint.component
    if not own or not exists_or_dangles(root / MODEL_INDEX):
        return {}
    found: dict[str, Checkpoint | None] = {name: None for name in list_folder(str(root)) if _is_component(root, name)}
    violations: list[Violation] = []
    for name in weight_components(root):
        if name != own:
            try:
                found[name] = read_checkpoint(root, name)
            except Refusal as refusal:
                violations += (_of_component(each, name, root / own) for each in refusal.violations)
    if violations:
        raise Refusal(violations)
    return {name: other for name, other in found.items() if name != own}


def folder_of(checkpoint: Checkpoint) -> Path:
    """Return the folder that the shards lie in."""
    path = Path(checkpoint.path)
    return path / checkpoint.component if path.is_dir() else path.parent


def require_inside(checkpoint: Checkpoint, places: Iterable[str]) -> None:
    """Raise `Refusal` (`companion-outside`) with every file that is a link to something outside the checkpoint.

    The result is published: it must hold no file of the machine that a link in an uploaded folder names. A link may lead
    to what lies in the tree, or, for a snapshot in a hub cache, to the cache's own `blobs`.
    """
    root = Path(checkpoint.path) if Path(checkpoint.path).is_dir() else Path(checkpoint.path).parent
    allowed = _roots(root)
    remedy = "Put the file itself in its place, or remove the link."
    violations = [
        Violation(
            code="companion-outside",
            object=place,
            expected="a file of the checkpoint, or a link to one",
            found=f"a link to {os.path.realpath(root / place)}",
            remedy=remedy,
        )
        for place in places
        if not any(Path(os.path.realpath(root / place)).is_relative_to(each) for each in allowed)
    ]
    if violations:
        raise Refusal(violations)


def companion_bytes(checkpoint: Checkpoint, path: Path) -> bytes:
    """Return the bytes of a companion file, which may have become a link since they were sorted."""
    root = Path(checkpoint.path) if Path(checkpoint.path).is_dir() else Path(checkpoint.path).parent
    require_inside(checkpoint, [str(path.relative_to(root))])
    with open_file(os.path.realpath(path), name=str(path)) as file:
        return file.read()


def _roots(root: Path) -> list[Path]:
    """Return the folders that a link in a tree may lead into: the tree, and of a hub cache's snapshot the blobs of the same cache."""
    real = Path(os.path.realpath(root))
    caches = [each.parent.parent / "blobs" for each in (real, *real.parents) if each.parent.name == "snapshots"]
    return [real, *(each for each in caches if not each.is_symlink())]


def _sorted(folder: Path, below: str, own: Collection[str], index: str = "", outdated: Collection[str] = ()) -> CompanionFiles:
    """Sort the files of a folder without `own`; the one that is the index of its weights is copied, and what is outdated is not."""
    copied, left = [], []
    for name in list_folder(str(folder)):
        if name in own:
            continue
        place = f"{below}/{name}" if below else name
        reason = "" if name == index else "it declares the layout of the source" if name in outdated else _reason(folder / name)
        if reason:
            left.append((place, reason))
        else:
            copied.append(place)
    return CompanionFiles(tuple(copied), tuple(left))


def _joined(sorted_files: Iterable[CompanionFiles]) -> CompanionFiles:
    every = tuple(sorted_files)
    return CompanionFiles(tuple(name for each in every for name in each.copied), tuple(pair for each in every for pair in each.left))


def _is_component(root: Path, name: str) -> bool:
    """Whether `name` is a folder that the pipeline lists."""
    try:
        component_folder(root, name)
    except Refusal:
        return False
    return True


def _of_component(violation: Violation, component: str, own: Path) -> Violation:
    """Say of which component a violation is, and how to do without the others."""
    remedy = f"{violation.remedy} To convert {own.name} without the rest of the pipeline, give its folder, {own}, as SRC."
    return attrs.evolve(violation, remedy=remedy, component="" if violation.object == component else component)


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
        named = kind_by_name(path.name)
        return "other weights" if named is None else named.words
    if status.st_size >= SIZE_LIMIT:
        return f"{status.st_size:,} bytes"
    with open_file(path, name=str(path)) as file:
        kind = recognize(file.read(SAMPLE))
    return kind.words if kind is not None and "pickle" in kind.words else ""

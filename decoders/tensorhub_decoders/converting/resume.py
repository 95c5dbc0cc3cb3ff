"""What a conversion was asked for, as names and texts that a rerun compares: the same request has the same result."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Self

import attrs

from tensorhub_contracts._version import __version__
from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.files import UNFINISHED, open_file, read_json_file, unreadable
from tensorhub_contracts.documents import document_json, read_document
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_decoders.converting.companion_files import Others, folder_of
from tensorhub_decoders.converting.plan import ConversionPlan
from tensorhub_decoders.converting.shard_writing import FilePlan, sync_folder, write_whole

_STATE: Final = "state.json"
_STATE_UNDER_WAY: Final = f"{_STATE}.writing"
_CHECKPOINT: Final = "checkpoint"

#: The names of the files that are written after all others, from the last one on: without them there is no pipeline, and no checkpoint.
_WRITTEN_LAST: Final = ("model_index.json", "config.json")


@attrs.frozen
class _Finished:
    """A finished shard."""

    #: Its size in bytes.
    size: int
    #: The SHA-256 of its header.
    header: str


@attrs.frozen
class _State:
    """What DST.partial is, and how far it is."""

    #: Everything that decides on what is written, by name.
    request: dict[str, str]
    #: The shards that are finished, by their paths below DST.
    shards: dict[str, _Finished] = attrs.field(factory=dict)


class UnfinishedOutput:
    """DST.partial, held by this process alone. `published` says that a run before this one came as far as DST itself."""

    def __init__(self, destination: Path, request: Mapping[str, str]) -> None:
        """Make or take over the folder.

        Raises `Refusal`: `destination-exists`, `destination-busy` if another process holds it, `partial-foreign` if it
        was not left by a conversion, `partial-differs` if it was left by one that was asked for something else.
        """
        self.destination = Path(os.path.abspath(destination))  # noqa: PTH100  # resolve() would follow links
        self.folder = self.destination.with_name(self.destination.name + ".partial")
        self.checkpoint = self.folder / _CHECKPOINT
        self._marked: set[Path] = set()
        exists = os.path.lexists(self.destination)
        if exists and not (self.folder / _STATE).is_file():
            raise _exists(self.destination)
        self._make_folder()
        self._descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._hold()
            if exists and not self._is_of(dict(request)):
                raise _exists(self.destination)
            self.published = exists
            if not exists:
                self._state = self._take_over(dict(request))
                self.checkpoint.mkdir(exist_ok=True)
                self._mark(self.checkpoint)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # or something above it is a file
            if not os.path.lexists(self.folder):
                raise
            remedy = f"Remove {self.folder}, or write to another destination."
            found = "a link" if self.folder.is_symlink() else "a file"
            expected = "a folder that a conversion left, or nothing"
            raise Refusal(
                [Violation(code="partial-foreign", object=str(self.folder), expected=expected, found=found, remedy=remedy)]
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def holds(self, name: str, plan: FilePlan) -> bool:
        """Whether a shard, by its path below DST, was finished by a run before this one, and lies there with its size and header."""
        path = self.checkpoint / name
        if self._state.shards.get(name) != _finished(plan) or not path.is_file() or path.stat().st_size != plan.size:
            return False
        with open_file(path, name=name) as file:
            return file.read(8 + len(plan.header)) == len(plan.header).to_bytes(8, "little") + plan.header

    def note(self, name: str, plan: FilePlan) -> None:
        """Record that a shard is finished."""
        self._write(_State(self._state.request, {**self._state.shards, name: _finished(plan)}))

    def path(self, name: str) -> Path:
        """Return where a file is to be written, by its path below DST; the folder that it lies in is there afterwards."""
        path = self.checkpoint / name
        path.parent.mkdir(exist_ok=True)
        self._mark(path.parent)
        return path

    def _mark(self, folder: Path) -> None:
        """Say in a folder that it is no checkpoint yet: whoever inspects it reads that, however whole it looks."""
        if folder not in self._marked:
            (folder / UNFINISHED).touch()
            self._marked.add(folder)

    def unmark(self) -> None:
        """Take the marks away: all of it is written."""
        for path in sorted(self.checkpoint.rglob(UNFINISHED), key=lambda each: -len(each.parts)):
            path.unlink()

    def keep_only(self, names: Collection[str]) -> None:
        """Remove whatever lies in the checkpoint's folder and is not at these paths: what a killed run left half-written.

        What was written last goes first, so that no half of a checkpoint looks whole if this run is killed here.
        """
        kept = {self.checkpoint / name for name in names}
        kept |= {path.parent for path in kept}
        kept |= {folder / UNFINISHED for folder in {self.checkpoint, *(path.parent for path in kept)}}
        for path in sorted(self.checkpoint.rglob("*"), key=_removal):
            if path not in kept:
                path.rmdir() if _is_folder(path) else path.unlink()

    def publish(self) -> None:
        """Rename the checkpoint's folder to DST, in one step."""
        sync_folder(self.checkpoint)
        self.checkpoint.rename(self.destination)
        sync_folder(self.destination.parent)

    def remove(self) -> None:
        """Remove DST.partial, the state last: until then a rerun knows what the folder is.

        What somebody else put into it stays, and the folder with it.
        """
        if self.checkpoint.exists():
            shutil.rmtree(self.checkpoint)
        for name in (_STATE_UNDER_WAY, _STATE):
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _hold(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(
                [
                    Violation(
                        code="destination-busy",
                        object=str(self.folder),
                        expected="a folder that nobody writes to",
                        found="another conversion at work",
                    )
                ]
            ) from None

    def _is_of(self, request: dict[str, str]) -> bool:
        """Whether the destination is what a run with this request made of this folder, and had no time to say."""
        try:
            state = _read_state(self.folder / _STATE)
        except Refusal:
            return False
        return state.request == request and not self.checkpoint.exists()

    def _take_over(self, request: dict[str, str]) -> _State:
        path = self.folder / _STATE
        remedy = f"Remove {self.folder} to begin anew, or write to another destination."
        if not path.is_file():
            strange = sorted(each.name for each in self.folder.iterdir() if each.name not in (_STATE_UNDER_WAY, _CHECKPOINT))
            if strange or (self.checkpoint.exists() and any(self.checkpoint.iterdir())):
                found = ", ".join(strange[:5]) or f"{_CHECKPOINT}, which is not empty, and no {_STATE}"
                raise Refusal(
                    [
                        Violation(
                            code="partial-foreign",
                            object=str(self.folder),
                            expected="a folder that a conversion left",
                            found=found,
                            remedy=remedy,
                        )
                    ]
                )
            self.checkpoint.mkdir(exist_ok=True)  # before the state: where there is a state and no such folder, it has become DST
            return self._write(_State(request))
        try:
            state = _read_state(path)
        except Refusal as refusal:
            expected, found = "the state of a conversion", refusal.violations[0].found
            raise Refusal([Violation(code="partial-foreign", object=str(path), expected=expected, found=found, remedy=remedy)]) from refusal
        differing = [
            Violation(
                code="partial-differs",
                object=key,
                expected=request.get(key, "nothing"),
                found=state.request.get(key, "nothing"),
                remedy=remedy,
                shard=str(path),
            )
            for key in dict.fromkeys([*request, *state.request])
            if request.get(key) != state.request.get(key)
        ]
        if differing:
            raise Refusal(differing)
        return state

    def _write(self, state: _State) -> _State:
        write_whole(self.folder / _STATE, document_json(state).encode())
        self._state = state
        return state


def _read_state(path: Path) -> _State:
    """Return what a state file says; raises `Refusal` (`document-malformed`) for anything else, unknown keys included."""
    return read_document(read_json_file(str(path)), _State, name=str(path), what="the state of a conversion", remedy="")


def _removal(path: Path) -> tuple[bool, int, int]:
    """Order what is removed: the files that make a whole of the others, then those, then folders, the deepest first."""
    rank = _WRITTEN_LAST.index(path.name) if path.name in _WRITTEN_LAST else len(_WRITTEN_LAST)
    return _is_folder(path), rank, -len(path.parts)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _finished(plan: FilePlan) -> _Finished:
    return _Finished(plan.size, hashlib.sha256(plan.header).hexdigest())


def _exists(destination: Path) -> Refusal:
    remedy = "Name a destination that does not exist; nothing is ever overwritten."
    return Refusal(
        [
            Violation(
                code="destination-exists", object=str(destination), expected="nothing at that path", found="something there", remedy=remedy
            )
        ]
    )


def conversion_request(checkpoint: Checkpoint, plan: ConversionPlan, options: Mapping[str, str]) -> dict[str, str]:
    """Return everything that decides on what is written. The values of the source are known by its files' sizes and times of change."""
    layout = hashlib.sha256()
    for shard in plan.shards:
        layout.update(shard.name.encode("utf-8", "surrogatepass") + b"\0" + shard.file.header)
    return {
        "version": __version__,
        "contract": plan.contract,
        "component": plan.component,
        **options,
        "source_headers": checkpoint.headers_digest,
        "source_files": _files_digest(checkpoint, plan.others),
        "written_headers": f"sha256:{layout.hexdigest()}",
    }


def _files_digest(checkpoint: Checkpoint, others: Others) -> str:
    digest = hashlib.sha256()
    for each in (checkpoint, *(other for other in others.values() if other is not None)):
        for name in each.headers:
            path = folder_of(each) / name
            try:
                status = path.stat()
            except OSError as error:
                raise unreadable(path, error, name=str(path)) from error
            place = name if each is checkpoint else f"{each.component}/{name}"
            digest.update(f"{place}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogatepass"))
    return f"sha256:{digest.hexdigest()}"


def require_unchanged(checkpoint: Checkpoint, plan: ConversionPlan, request: Mapping[str, str]) -> None:
    """Raise `Refusal` (`file-changed`) if a shard of the source was written to since the request was put together."""
    if _files_digest(checkpoint, plan.others) != request["source_files"]:
        remedy = "Convert it again, and do not write to it."
        raise Refusal(
            [
                Violation(
                    code="file-changed",
                    object=checkpoint.path,
                    expected="shards as they were at the beginning",
                    found="shards changed since",
                    remedy=remedy,
                )
            ]
        )

"""How files come to lie on the disk: with the permissions that the user's umask leaves, and flushed before they get their names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import tensorhub_decoders.converting.shard_writing as shard_writing

from tests.support.conversions import BLOCKWISE, done, noise, save
from tests.support.system_calls import needs_proc


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = save(tmp_path / "source", {"a.weight": noise(16, 16)}, {"b.weight": noise(16, 16)}, config={})
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path: Path, source: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    finally:
        os.umask(before)
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "made").iterdir()}
    assert len(modes) == 5
    assert set(modes.values()) == {oct(0o666 & ~umask)}


@needs_proc
def test_no_file_stays_open(tmp_path: Path, source: Path) -> None:
    done("produce", source, tmp_path / "first", "--to", BLOCKWISE)
    before = os.listdir("/proc/self/fd")
    done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    assert os.listdir("/proc/self/fd") == before


def test_each_file_is_on_the_disk_before_it_gets_its_name_and_its_name_is_afterwards(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine that loses its power can keep a name and lose what it stands for."""
    seen: list[tuple[str, int, int]] = []
    fsync, rename = os.fsync, Path.rename

    def flushing(descriptor: int) -> None:
        status = os.fstat(descriptor)
        seen.append(("flush", status.st_ino, status.st_size))
        fsync(descriptor)

    def renaming(path: Path, target: Path) -> Path:
        seen.append(("rename", path.stat().st_ino, path.stat().st_size))
        found = rename(path, target)
        seen.append(("renamed", target.parent.stat().st_ino, 0))
        return found

    monkeypatch.setattr(shard_writing.os, "fsync", flushing)
    monkeypatch.setattr(Path, "rename", renaming)
    done("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    renames = [place for place, event in enumerate(seen) if event[0] == "rename"]
    assert len(renames) >= 6  # five files and their folder; and the state
    for place in renames:
        assert ("flush", *seen[place][1:]) in seen[:place]
        assert ("flush", seen[place + 1][1]) == seen[place + 2][:2]

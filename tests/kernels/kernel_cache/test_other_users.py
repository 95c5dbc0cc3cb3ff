"""A cubin is code that runs as whoever loads it: none is taken that another user wrote, or could have."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc.cache import cubin_is_kept, find_cubin
from tensorhub_cuda.nvrtc.cache_folder import cache_state

from tests.kernels.support.small_sources import PLAIN
from tests.support.privileges import NOBODY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")

CHANGES: dict[str, Callable[[Path], None]] = {
    "of another user": lambda file: os.chown(file, NOBODY, -1),
    "writable by all": lambda file: file.chmod(0o666),
}


@needs_root
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_others_is_compiled_again(change: str, folder: Path, compiled: list[int]) -> None:
    file = Path(find_cubin(PLAIN, 90).path)
    assert find_cubin(PLAIN, 90).origin == "cache"
    CHANGES[change](file)
    assert not cubin_is_kept(PLAIN, 90)
    assert (find_cubin(PLAIN, 90).origin, compiled) == ("compiled", [90, 90])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find_cubin(PLAIN, 90).origin == "cache"


@needs_root
@pytest.mark.parametrize("change", ["mode", "sticky", "owner"])
def test_a_folder_of_others_gives_and_keeps_nothing(change: str, folder: Path, compiled: list[int]) -> None:
    find_cubin(PLAIN, 90)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    if change == "owner":
        os.chown(folder, NOBODY, -1)
    else:
        folder.chmod(0o777 if change == "mode" else 0o1777)
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path, compiled) == ("compiled", "", [90, 90])
    said = "it is the folder of another user, 65534" if change == "owner" else "every user may write into it"
    assert said in found.not_kept
    assert (cache_state().state, said in cache_state().reason) == ("unusable", True)
    assert not cubin_is_kept(PLAIN, 90)
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_keeps_nobody_waiting(kind: str, folder: Path, compiled: list[int]) -> None:
    file = Path(find_cubin(PLAIN, 90).path)
    elsewhere = file.rename(file.with_name("elsewhere"))
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to(elsewhere)
    else:
        file.mkdir()
    assert not cubin_is_kept(PLAIN, 90)
    assert (find_cubin(PLAIN, 90).origin, compiled) == ("compiled", [90, 90])

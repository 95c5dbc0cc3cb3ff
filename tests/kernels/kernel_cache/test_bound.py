"""The bound of the compile cache: what is removed first, and what never is."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc import cache_folder as folders
from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.cache_folder import remove_least_recently_used
from tensorhub_cuda.nvrtc.cubin import CubinDescription, CubinFile, write_cubin_file

from tests.kernels.support.small_sources import OTHER, PLAIN


def named(name: str) -> str:
    """Return a name as the cache gives them."""
    return f"{hashlib.sha256(name.encode()).hexdigest()}.nvrtc-13.5.cubin"


def store(folder: Path, name: str, age: int, *, size: int = 1000, ahead_of_time: bool = False) -> Path:
    """Write a file of about `size` bytes that was last used `age` seconds ago."""
    path = folder / named(name)
    write_cubin_file(path, CubinFile(b"x" * size, CubinDescription(name, "sm_90a", "13.5", (), ahead_of_time)))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    files = [store(folder, f"kernel{age}", age) for age in (10, 40, 20, 30)]
    size = files[0].stat().st_size
    (folder / "notes.txt").write_text("x" * 10_000)  # not ours: neither counted nor removed
    remove_least_recently_used(folder, keep="", bound=4 * size)
    assert len(list(folder.iterdir())) == 5
    remove_least_recently_used(folder, keep="", bound=2 * size)
    assert {each.name for each in folder.iterdir()} == {named("kernel10"), named("kernel20"), "notes.txt"}


def test_neither_the_file_in_use_nor_an_images_file_goes(folder: Path) -> None:
    used, built = store(folder, "used", 50), store(folder, "built", 60, ahead_of_time=True)
    store(folder, "old", 40)
    store(folder, "new", 10)
    remove_least_recently_used(folder, keep=str(used), bound=0)
    assert set(folder.iterdir()) == {used, built}


def test_a_hit_counts_as_use(folder: Path) -> None:
    first, second = Path(find_cubin(PLAIN, 90).path), Path(find_cubin(OTHER, 90).path)
    for file, age in ((first, 90), (second, 80)):
        os.utime(file, (time.time() - age,) * 2)
    find_cubin(PLAIN, 90)
    remove_least_recently_used(folder, keep="", bound=first.stat().st_size)
    assert list(folder.iterdir()) == [first]


def test_writing_keeps_the_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store(folder, "old", 100, size=50_000)
    real = kernel_cache.remove_least_recently_used
    monkeypatch.setattr(kernel_cache, "remove_least_recently_used", lambda folder, keep: real(folder, keep=keep, bound=20_000))
    found = find_cubin(PLAIN, 90)
    assert not old.exists()
    assert list(folder.iterdir()) == [Path(found.path)]
    assert folders.BOUND_BYTES == 256 << 20


def test_files_of_others_are_neither_counted_nor_removed(folder: Path) -> None:
    """Whatever they are called: somebody may have named a folder that was not empty."""
    ours = store(folder, "old", 100)
    theirs = ["holiday-photos.zip.partial", "foreign.cubin", f"{'0' * 64}.cubin", f"x{named('a')}", f"{named('a')}.old"]
    for name in theirs:
        (folder / name).write_bytes(b"x" * 100_000)
        os.utime(folder / name, (0, 0))
    left = folder / f"{named('killed')}.k3_xyz0a.partial"
    left.write_bytes(b"")
    os.utime(left, (0, 0))
    remove_least_recently_used(folder, keep="", bound=0)
    assert sorted(each.name for each in folder.iterdir()) == sorted(theirs)
    assert not ours.exists()
    assert (folders.cache_state().files, folders.cache_state().size) == (0, 0)

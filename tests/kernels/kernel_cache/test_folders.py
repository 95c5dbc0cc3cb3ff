"""Folders of the compile cache that keep nothing: read-only, unreadable, impossible, none at all; and where the folder is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc import cache_folder as folders
from tensorhub_cuda.nvrtc.cache import build_cubin, find_cubin
from tensorhub_cuda.nvrtc.cache_folder import cache_state

from tests.kernels.support.small_sources import OTHER, PLAIN
from tests.support.privileges import without_privileges


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A folder that the tests' user may read, and not write, once it is given up to that."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_read_only_folder_serves_what_it_holds(foreign: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[int]) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(foreign))
    _, file = build_cubin(PLAIN, 90, foreign)
    before = {each.name: each.read_bytes() for each in foreign.iterdir()}
    foreign.chmod(0o555)
    with without_privileges():
        kept, lost = find_cubin(PLAIN, 90), find_cubin(OTHER, 90)
        state = cache_state()
    assert (kept.origin, kept.path) == ("image", str(file))
    assert (lost.origin, lost.path, lost.code[:4]) == ("compiled", "", b"\x7fELF")
    assert "ermission denied" in lost.not_kept
    assert str(foreign) in lost.not_kept
    assert (state.state, state.files) == ("read-only", 1)
    assert "compiled again in every process" in state.reason
    assert {each.name: each.read_bytes() for each in foreign.iterdir()} == before


def test_an_unreadable_folder_and_file(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(foreign))
    _, file = build_cubin(PLAIN, 90, foreign)
    file.chmod(0)
    with without_privileges():
        assert find_cubin(PLAIN, 90).origin == "compiled"
    foreign.chmod(0)
    with without_privileges():
        assert find_cubin(PLAIN, 90).origin == "compiled"
        assert cache_state().state == "unusable"


@pytest.mark.parametrize("place", ["file/kernels", "file"])
def test_a_folder_that_cannot_be(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path / place))
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert str(tmp_path / place) in found.not_kept
    assert cache_state().state == "unusable"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSOR_CONTRACTS_KERNEL_CACHE")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(folders.Path, "home", homeless)
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert "TENSOR_CONTRACTS_KERNEL_CACHE" in found.not_kept
    assert cache_state().state == "unusable"


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path / "own"))
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / "own", "TENSOR_CONTRACTS_KERNEL_CACHE")
    monkeypatch.delenv("TENSOR_CONTRACTS_KERNEL_CACHE")
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / "caches" / "tensorhub" / "kernels", "XDG_CACHE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / ".cache" / "tensorhub" / "kernels", "default")
    assert cache_state().state == "not made yet"

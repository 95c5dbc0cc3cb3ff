"""Paths that are no checkpoint: what they are is said, and no checkpoint is picked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import write_checkpoint
from tests.support.cli import tensorhub
from tests.support.refusals import refused_alone

TENSORS = {"a.weight": ("BF16", (4, 4))}


@pytest.mark.parametrize(
    "url", ["hf://Qwen/Qwen3-8B-FP8", "https://huggingface.co/Qwen/Qwen3-8B-FP8/resolve/main/x.safetensors", "s3://b/k"]
)
def test_a_url_keeps_its_slashes_and_is_called_one(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    violation = refused_alone("checkpoint-not-found", read_checkpoint, url)
    assert violation.object == url
    assert "a URL" in violation.found
    assert "local folders" in violation.found
    for command in ("inspect", "artifact"):
        done = tensorhub(command, url)
        assert done.code == 2
        assert f"there is nothing at {url}, which looks like a URL" in " ".join(done.err.split())


def test_the_name_of_a_repository_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    violation = refused_alone("checkpoint-not-found", read_checkpoint, "Qwen/Qwen3-8B-FP8")
    assert "repository on a hub" in violation.found
    assert "hf download Qwen/Qwen3-8B-FP8" in violation.remedy
    done = tensorhub("inspect", "Qwen/Qwen3-8B-FP8")
    assert done.code == 2
    assert "looks like the name of a repository on a hub" in " ".join(done.err.split())


@pytest.mark.parametrize(
    "path", ["folder/tree", "../owner/name", "/owner/name", "./owner/name", "a/b/c", "name", "owner/x.safetensors", "~/x"]
)
def test_a_path_is_not_called_a_repository(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    violation = refused_alone("checkpoint-not-found", read_checkpoint, path)
    assert violation.found == "nothing at that path"
    assert violation.remedy == "Check the path."


def test_a_folder_that_is_there_is_read_whatever_its_name_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "Qwen" / "Qwen3-8B", TENSORS)
    assert inspect("Qwen/Qwen3-8B").contract == "plain.bf16@1"


def test_a_folder_of_checkpoints_names_them(tmp_path: Path) -> None:
    for number in range(7):
        write_checkpoint(tmp_path / f"m{number}", TENSORS)
    (tmp_path / "empty").mkdir()
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.found == "no .safetensors file; folders in it hold some: m0, m1, m2, m3, m4 and 2 more"
    assert str(tmp_path / "m0") in violation.remedy


def test_the_cache_of_a_hub_names_the_snapshots_and_takes_none(tmp_path: Path) -> None:
    for name in ("models--a--x", "models--b--y"):
        write_checkpoint(tmp_path / name / "snapshots" / "0123", TENSORS)
    (tmp_path / "datasets--c--z").mkdir()
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert "the cache of a hub with 2 models" in violation.found
    for name in ("models--a--x", "models--b--y"):
        assert str(tmp_path / name / "snapshots" / "0123") in violation.found
    assert str(tmp_path / "models--a--x" / "snapshots" / "0123") in violation.remedy


def test_a_cache_without_a_snapshot_says_so(tmp_path: Path) -> None:
    (tmp_path / "models--a--x").mkdir()
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.found.endswith("1 model and no snapshot")
    assert violation.remedy == "Download a snapshot."

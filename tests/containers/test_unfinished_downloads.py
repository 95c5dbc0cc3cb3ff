"""What a download that was interrupted leaves is said wherever something is missing, and the remedy is to finish it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts.checkpoints.header import read_header
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tensorhub_contracts.errors import Violation
from tests.support.checkpoint_files import shard_name, write_checkpoint
from tests.support.refusals import refused, refused_alone

TENSORS = {"a.weight": ("BF16", (4, 4)), "b.weight": ("BF16", (4, 4))}
FIRST, SECOND = shard_name(1, 2), shard_name(2, 2)


def leave(path: Path) -> Path:
    """Write what a download leaves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(7))
    return path


def assert_unfinished(violation: Violation, path: Path) -> None:
    assert "unfinished download" in violation.found
    assert str(path) in violation.found
    assert violation.remedy.startswith("Finish the download")


def cached(root: Path) -> Path:
    """Return a snapshot of a hub cache that holds only the configuration; its weights are on the way."""
    snapshot = root / "models--owner--name" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_a_snapshot_whose_weights_are_on_the_way(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    assert "unfinished" not in refused_alone("checkpoint-without-weights", read_checkpoint, snapshot).found
    left = leave(snapshot.parents[1] / "blobs" / ("a" * 64 + ".incomplete"))
    assert_unfinished(refused_alone("checkpoint-without-weights", read_checkpoint, snapshot), left)
    above = refused_alone("checkpoint-without-weights", read_checkpoint, snapshot.parents[1])
    assert "unfinished" not in above.found, "another snapshot may be whole"
    assert str(snapshot) in above.remedy


def test_a_cache_without_a_snapshot(tmp_path: Path) -> None:
    left = leave(tmp_path / "models--a--b" / "blobs" / "a.incomplete")
    (tmp_path / "models--a--b" / "snapshots").mkdir()
    assert_unfinished(refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path / "models--a--b"), left)


def test_a_component_in_a_snapshot(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    (snapshot / "model_index.json").write_text('{"vae": ["diffusers", "AutoencoderKL"]}')
    (snapshot / "vae").mkdir()
    left = leave(snapshot.parents[1] / "blobs" / "b.incomplete")
    assert_unfinished(refused_alone("checkpoint-without-weights", read_checkpoint, snapshot, "vae"), left)


def test_a_component_of_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"vae": ["diffusers", "AutoencoderKL"]}')
    (tmp_path / "vae").mkdir()
    left = leave(tmp_path / ".cache" / "huggingface" / "download" / "vae" / "x.incomplete")
    assert_unfinished(refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path, "vae"), left)


@pytest.mark.parametrize(
    "name",
    [
        ".cache/huggingface/download/abc=.0123.incomplete",
        "model.safetensors.part",
        "model.safetensors.aria2",
        "model.safetensors.crdownload",
        "model.safetensors.incomplete",
    ],
)
def test_what_other_tools_leave_in_a_local_folder(name: str, tmp_path: Path) -> None:
    left = leave(tmp_path / name)
    assert_unfinished(refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path), left)


@pytest.mark.parametrize("index", [True, False])
def test_a_shard_that_is_on_the_way(index: bool, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=2, index=index)
    (tmp_path / SECOND).unlink()
    code = "index-shard-missing" if index else "shards-incomplete"
    assert "unfinished" not in refused_alone(code, read_checkpoint, tmp_path).found
    left = leave(tmp_path / (SECOND + ".aria2"))
    assert_unfinished(refused_alone(code, read_checkpoint, tmp_path), left)


@pytest.mark.parametrize("index", [True, False])
def test_a_link_into_a_cache_whose_blob_is_on_the_way(index: bool, tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    write_checkpoint(snapshot, TENSORS, shards=2, index=index)
    (snapshot / SECOND).unlink()
    (snapshot / SECOND).symlink_to("../../blobs/" + "c" * 64)
    left = leave(snapshot.parents[1] / "blobs" / ("c" * 64 + ".incomplete"))
    assert_unfinished(refused_alone("file-broken-link", read_checkpoint, snapshot), left)


def test_a_file_that_is_named_and_is_on_the_way(tmp_path: Path) -> None:
    left = leave(tmp_path / "model.safetensors.part")
    assert_unfinished(refused_alone("checkpoint-not-found", read_checkpoint, tmp_path / "model.safetensors"), left)
    assert_unfinished(refused_alone("file-missing", read_header, tmp_path / "model.safetensors"), left)


def test_a_path_where_nothing_lies_is_not_explained_by_anyones_download(tmp_path: Path) -> None:
    leave(tmp_path / "film.part")
    assert refused_alone("checkpoint-not-found", read_checkpoint, tmp_path / "model.safetensors").found == "nothing at that path"


def test_many_are_counted_and_three_named(tmp_path: Path) -> None:
    for number in range(9):
        leave(tmp_path / f"{number}.part")
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.found.endswith("2.part and 6 more")


def test_a_whole_checkpoint_beside_an_unfinished_download_is_read(tmp_path: Path) -> None:
    leave(tmp_path / "other.safetensors.part")
    assert set(read_checkpoint(write_checkpoint(tmp_path, TENSORS)).tensors) == set(TENSORS)


def test_what_is_broken_and_there_is_not_blamed_on_the_download(tmp_path: Path) -> None:
    leave(tmp_path / "other.safetensors.part")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert all("unfinished" not in each.found for each in refused(read_checkpoint, tmp_path))

"""In which order a file system or a JSON object gives names decides on nothing that is said or read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorhub_contracts.checkpoints.pipeline import weight_components
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import Tensors, shard_name, write_checkpoint, write_sparse
from tests.support.refusals import refused_alone

NAMES = ("kilo", "alpha", "mike", "delta", "juliet", "bravo", "golf")
SIX: Tensors = {f"{name}.weight": ("BF16", (8, 8)) for name in NAMES}


@pytest.fixture(params=[False, True], ids=["ascending", "descending"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let folders be listed in one order and in the other."""
    listed: Callable[..., list[str]] = os.listdir
    monkeypatch.setattr(os, "listdir", lambda *path: sorted(listed(*path), reverse=request.param))


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("index", [True, False])
def test_shards_are_read_by_their_numbers(tmp_path: Path, index: bool) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path, SIX, shards=7, index=index))
    assert list(checkpoint.headers) == [shard_name(number, 7) for number in range(1, 8)]
    assert list(checkpoint.tensors) == list(SIX)


@pytest.mark.usefixtures("order")
def test_files_that_could_be_the_checkpoint_and_those_beside_it_are_listed_by_name(tmp_path: Path) -> None:
    for name in NAMES:
        write_sparse(tmp_path / f"{name}.safetensors", SIX)
    listed = [f"{name}.safetensors" for name in sorted(NAMES)]
    assert refused_alone("checkpoint-ambiguous", read_checkpoint, tmp_path).found == ", ".join(listed)
    write_sparse(tmp_path / "model.safetensors", SIX)
    assert list(read_checkpoint(tmp_path).extra_files) == listed


@pytest.mark.usefixtures("order")
def test_snapshots_and_files_that_are_never_opened_are_listed_by_name(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / "snapshots" / name).mkdir(parents=True)
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.found == "a hub cache with the snapshots alpha, bravo, delta, golf, juliet"
    assert violation.remedy == f"Point at a snapshot, for example {tmp_path}/snapshots/alpha."
    for name in NAMES:
        (tmp_path / f"{name}.bin").touch()
    found = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path).found
    assert found == "only alpha.bin, bravo.bin, delta.bin, golf.bin, juliet.bin; files of these kinds are never opened"


@pytest.mark.usefixtures("order")
def test_components_are_listed_by_name(tmp_path: Path) -> None:
    for name in NAMES:
        write_checkpoint(tmp_path / name, SIX)
    (tmp_path / "aaa.txt").touch()
    listed = f"the components {', '.join(sorted(NAMES))}"
    assert refused_alone("component-unknown", read_checkpoint, tmp_path, "nobody").found == listed
    (tmp_path / "model_index.json").write_text(json.dumps({name: ["diffusers", "Model"] for name in NAMES}))
    assert weight_components(tmp_path) == tuple(sorted(NAMES))
    assert refused_alone("component-unknown", read_checkpoint, tmp_path, "nobody").found == listed
    assert refused_alone("component-required", read_checkpoint, tmp_path).found == f"a pipeline root with {listed}"


def test_a_folder_without_folders_has_no_component(tmp_path: Path) -> None:
    assert refused_alone("component-unknown", read_checkpoint, tmp_path, "vae").found == "no component"

"""Pipes, links, devices and vanished files where a conversion reads and writes: each is said, nothing hangs, nothing leaves the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorhub_decoders.converting.convert as convert
from tensorhub_decoders.reading import TensorReader

from tensorhub_contracts import Inspection, Refusal, inspect
from tensorhub_contracts.checkpoints.files import UNFINISHED
from tests.support.conversions import ROWWISE, done, noise, refused, run, save

TO = ("--to", ROWWISE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = save(tmp_path / "source", {"a.weight": noise(16, 16)}, config={"hidden_size": 16})
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_companions_that_are_links_out_of_the_tree_are_refused_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("secret")
    (source / "vocab.txt").symlink_to(tmp_path / "id_rsa")
    (source / "env.txt").symlink_to("/proc/self/environ")
    (source / "merges.txt").symlink_to("../id_rsa")
    (source / "inside.txt").symlink_to("tokenizer.json")
    for command in (("produce", source, tmp_path / "made", *TO), ("decode", source, tmp_path / "made", "--to", "plain.bf16@1")):
        if command[0] == "decode":
            continue  # it is in that contract already
        violations = refused(*command)
        found = {each["object"]: each["code"] for each in violations}
        assert found == dict.fromkeys(["env.txt", "merges.txt", "vocab.txt"], "companion-outside")
        assert not (tmp_path / "made.partial").exists()
    for name in found:
        (source / name).unlink()
    done("produce", source, tmp_path / "made", *TO)
    assert (tmp_path / "made" / "inside.txt").read_text() == "{}"


def test_a_configuration_that_is_a_link_out_of_the_tree_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "config.json").rename(tmp_path / "credentials.json")
    (source / "config.json").symlink_to(tmp_path / "credentials.json")
    assert [(each["object"], each["code"]) for each in refused("produce", source, tmp_path / "made", *TO)] == [
        ("config.json", "companion-outside")
    ]


@pytest.mark.parametrize("blobs", ["real", "link"])
def test_a_snapshot_may_lead_into_the_blobs_of_its_own_cache(blobs: str, source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "snapshots").mkdir(parents=True)
    snapshot = source.rename(cache / "snapshots" / "abc")
    (tmp_path / "elsewhere").mkdir()
    (cache / "blobs").mkdir() if blobs == "real" else (cache / "blobs").symlink_to(tmp_path / "elsewhere")
    for name in ("config.json", "tokenizer.json"):
        (snapshot / name).rename(cache / "blobs" / name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    if blobs == "real":
        done("produce", snapshot, tmp_path / "made", *TO)
        assert (tmp_path / "made" / "tokenizer.json").read_text() == "{}"
    else:  # an uploaded folder can hold a link of that name
        assert {each["code"] for each in refused("produce", snapshot, tmp_path / "made", *TO)} == {"companion-outside"}


def test_a_link_that_is_put_there_meanwhile_is_not_followed(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_files = convert.companion_files

    def swapped(*arguments: Any) -> Any:
        found = sorted_files(*arguments)
        (source / "tokenizer.json").unlink()
        (source / "tokenizer.json").symlink_to("/proc/self/environ")
        return found

    monkeypatch.setattr(convert, "companion_files", swapped)
    assert {each["code"] for each in refused("produce", source, tmp_path / "made", *TO)} == {"companion-outside"}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["state.json.writing", "checkpoint/model.safetensors.writing", "checkpoint/config.json.writing"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_or_a_link_under_a_temporary_name_is_an_error_and_no_wait(name: str, kind: str, source: Path, tmp_path: Path) -> None:
    partial = tmp_path / "made.partial"
    monkey = tmp_path / "target"
    monkey.write_text("keep")
    (partial / name).parent.mkdir(parents=True)
    os.mkfifo(partial / name) if kind == "pipe" else (partial / name).symlink_to(monkey)
    found = run("produce", source, tmp_path / "made", *TO)
    assert found.code in (1, 3)
    assert "Traceback" not in found.err
    assert monkey.read_text() == "keep"


def test_a_file_in_place_of_the_partial_folder_is_refused_by_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "made.partial").write_text("")
    (violation,) = refused("produce", source, tmp_path / "made", *TO)
    assert (violation["code"], violation["object"], violation["found"]) == ("partial-foreign", str(tmp_path / "made.partial"), "a file")


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (lambda file: file.unlink(), "nothing at that path"),
    "a pipe": (lambda file: (file.unlink(), os.mkfifo(file))[0], "a named pipe"),
    "a folder": (lambda file: (file.unlink(), file.mkdir())[0], "a folder"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_shard_that_is_no_file_any_more_has_changed(change: str, source: Path) -> None:
    inspection = inspect(source)
    CHANGES[change][0](source / "model.safetensors")
    with TensorReader(inspection) as reader, pytest.raises(Refusal) as caught:
        reader.read("a.weight")
    (violation,) = caught.value.violations
    assert (violation.code, violation.found) == ("file-changed", CHANGES[change][1])


def test_a_shard_that_vanishes_before_the_conversion_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = convert.conversion_request

    def vanishing(*arguments: Any) -> Any:
        (source / "model.safetensors").unlink()
        return request(*arguments)

    monkeypatch.setattr(convert, "conversion_request", vanishing)
    (violation,) = refused("produce", source, tmp_path / "made", *TO)
    assert violation["code"] == "file-missing"


def test_what_is_being_written_is_no_checkpoint_yet(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Inspection] = []
    write = convert.write_whole

    def looking(path: Path, data: bytes) -> None:
        seen.extend((inspect(path.parent), inspect(path.parent / "model.safetensors")))
        write(path, data)

    monkeypatch.setattr(convert, "write_whole", looking)
    done("produce", source, tmp_path / "made", *TO)
    assert seen
    assert {each.codes for each in seen} == {("checkpoint-unfinished",)}
    assert inspect(tmp_path / "made").contract == ROWWISE
    assert not list((tmp_path / "made").rglob(UNFINISHED))
    assert json.loads((tmp_path / "made" / "config.json").read_text())

"""A conversion that is killed, or that meets a full disk, leaves nothing or what a rerun goes on from, and the result is the same."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import tensorhub_decoders.converting.shard_writing as shard_writing
from tensorhub_decoders.converting.resume import UnfinishedOutput

from tensorhub_contracts.checkpoints.files import UNFINISHED
from tensorhub_contracts.errors import OutputError
from tests.support.cli import TENSORHUB, environment
from tests.support.conversions import BLOCKWISE, ROWWISE, digests, done, interrupted_after, noise, refused, run, save

KILLS = 50
SKIP = ("--skip", "*embed*")


def many_shards(folder: Path, shards: int = 6, rows: int = 512) -> Path:
    """Write a checkpoint with a large matrix, a small one and a vector in each shard, and a few files beside them."""
    parts = []
    for layer in range(shards):
        names = {"up.weight": (rows, 768), "down.weight": (256, 300), "norm.weight": (768,), "embed.weight": (16, 16)}
        parts.append({f"layers.{layer}.{name}": noise(*shape, seed=layer) for name, shape in names.items()})
    save(folder, *parts, config={"vocab_size": 9})
    (folder / "tokenizer.json").write_text(json.dumps(list(range(50_000))))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_shards(tmp_path_factory.mktemp("dense") / "source")


@pytest.mark.parametrize("command", ["produce", "decode"])
def test_killed_at_random_and_run_again(tmp_path: Path, source: Path, command: str) -> None:
    if command == "produce":
        arguments = ["produce", str(source), "DST", "--to", BLOCKWISE, *SKIP]
    else:
        done("produce", source, tmp_path / "fp8", "--to", BLOCKWISE, *SKIP)
        arguments = ["decode", str(tmp_path / "fp8"), "DST", "--to", "plain.f32@1"]
    request = {"arguments": arguments, "destination": str(tmp_path / "made"), "kills": KILLS, "factor": 0.7, "seed": 11}
    script = Path(__file__).parents[1] / "support" / "interrupts.py"
    process = subprocess.run(
        [sys.executable, script, json.dumps(request)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment({"OMP_NUM_THREADS": "1"}),
    )
    assert process.returncode == 0, process.stderr[-3000:]
    found = json.loads(process.stdout)
    print({key: found[key] for key in ("alone", "seconds", "kills", "codes", "finished_shards")})
    assert found["first"] == 0
    assert found["kills"] >= KILLS
    assert set(found["codes"]) <= {0, 1}, process.stderr[-3000:]  # 1: the destination was there already when it was asked for again
    assert "Traceback" not in process.stderr
    assert found["odd"] == []
    assert len(set(found["finished_shards"])) > 2, "killed at one stage alone"
    whole = digests(tmp_path / "made-whole")
    for tree in (found["trees"][0], found["trees"][-1]):
        assert digests(Path(tree)) == whole
    left = {path.name for path in tmp_path.iterdir() if path.name.endswith(".partial") and any(path.iterdir())}
    assert not left


def test_the_executable_is_killed_and_goes_on(tmp_path: Path, source: Path) -> None:
    """The same with the real command line: killed as soon as the first shard is finished."""
    target = tmp_path / "made"
    command = [str(TENSORHUB), "produce", str(source), str(target), "--to", ROWWISE, "--skip", "*embed*", "--skip", "*.down.*"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    first = tmp_path / "made.partial" / "checkpoint" / "model-00001-of-00006.safetensors"
    while process.poll() is None and not first.exists():
        pass
    process.kill()
    process.wait()
    if not target.exists():
        assert first.exists()
        inode = first.stat().st_ino
        report = done(*command[1:])
        assert report["shards_resumed"] >= 0
        assert (target / first.name).stat().st_ino == inode or report["shards_resumed"] == 0
    done("produce", source, tmp_path / "whole", *command[4:])
    assert digests(target) == digests(tmp_path / "whole")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_reported_and_a_rerun_keeps_what_is_finished(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    arguments = ("produce", source, tmp_path / "made", "--to", BLOCKWISE, *SKIP)
    interrupted_after(3, monkeypatch, OSError(number, os.strerror(number)))
    found = run(*arguments)
    assert found.code == 3
    assert found.out == ""
    assert os.strerror(number) in found.err
    assert "more are needed" in found.err
    assert "run the same command again" in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "made").exists()
    work = tmp_path / "made.partial" / "checkpoint"
    assert sorted(path.name for path in work.glob("*.*")) == [UNFINISHED, *(f"model-0000{each}-of-00006.safetensors" for each in (1, 2, 3))]
    inodes = {path.name: path.stat().st_ino for path in work.glob("*.safetensors")}
    monkeypatch.undo()
    assert done(*arguments)["shards_resumed"] == 3
    assert {name: (tmp_path / "made" / name).stat().st_ino for name in inodes} == inodes
    done("produce", source, tmp_path / "whole", "--to", BLOCKWISE, *SKIP)
    assert digests(tmp_path / "made") == digests(tmp_path / "whole")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system takes root")
def test_a_file_system_that_is_really_full(tmp_path: Path, source: Path) -> None:
    (tmp_path / "small").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", tmp_path / "small"], capture_output=True).returncode:
        pytest.skip("this container does not let root mount")
    try:
        arguments = ("produce", source, tmp_path / "small" / "made", "--to", BLOCKWISE, *SKIP)
        found = run(*arguments)
        assert found.code == 3
        assert "No space left on device" in found.err
        subprocess.run(["mount", "-o", "remount,size=60m", tmp_path / "small"], check=True)
        assert 0 < done(*arguments)["shards_resumed"] < 6
        done("produce", source, tmp_path / "whole", "--to", BLOCKWISE, *SKIP)
        assert digests(tmp_path / "small" / "made") == digests(tmp_path / "whole")
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("")
    found = run("produce", source, tmp_path / "file" / "made", "--to", BLOCKWISE, *SKIP)
    assert found.code == 3
    assert "Not a directory" in found.err


@pytest.fixture
def unfinished(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """A command, interrupted when two shards were finished."""
    arguments = ("produce", source, tmp_path / "made", "--to", BLOCKWISE, *SKIP)
    interrupted_after(2, monkeypatch, KeyboardInterrupt())
    with pytest.raises(click.Abort):
        run(*arguments)
    monkeypatch.undo()
    return arguments


def test_other_arguments_are_refused_and_the_same_go_on(tmp_path: Path, unfinished: tuple[Any, ...]) -> None:
    for others in (("--skip", "*norm*"), ("--only", "*.up.*")):
        violations = refused(*unfinished, *others)
        assert {each["code"] for each in violations} == {"partial-differs"}
        assert {"skip", "only"} & {each["object"] for each in violations}
        assert "Remove" in violations[0]["remedy"]
    (command, source, target, _, _, *skip) = unfinished
    assert "contract" in {each["object"] for each in refused(command, source, target, "--to", "cozy.fp8-storage@1", *skip)}
    assert done(*unfinished)["shards_resumed"] == 2


def test_another_source_is_refused(tmp_path: Path, unfinished: tuple[Any, ...]) -> None:
    """The same headers and other values: sizes and times of change tell."""
    other = many_shards(tmp_path / "other")
    (command, _, target, *rest) = unfinished
    assert {each["object"] for each in refused(command, other, target, *rest)} == {"source_files"}
    wider = many_shards(tmp_path / "wider", rows=640)
    assert {"source_headers", "source_files"} <= {each["object"] for each in refused(command, wider, target, *rest)}


@pytest.mark.parametrize("harm", ["shorter", "other header", "gone", "never noted", "left half-written"])
def test_shards_that_are_not_as_they_were_noted_are_written_again(tmp_path: Path, unfinished: tuple[Any, ...], harm: str) -> None:
    work = tmp_path / "made.partial" / "checkpoint"
    shard = work / "model-00001-of-00006.safetensors"
    if harm == "shorter":
        os.truncate(shard, shard.stat().st_size - 1)
    elif harm == "other header":
        with shard.open("r+b") as file:
            file.seek(20)
            file.write(b"X")
    elif harm == "gone":
        shard.unlink()
    elif harm == "never noted":
        shutil.copy(shard, work / "model-00005-of-00006.safetensors")
    else:
        (work / "model-00004-of-00006.safetensors.writing").write_bytes(b"half")
        (work / "tokenizer.json").write_text("half")
        (work / "stale.json").write_text("not of the source any more")
    assert done(*unfinished)["shards_resumed"] == (1 if harm in ("shorter", "other header", "gone") else 2)
    done("produce", unfinished[1], tmp_path / "whole", "--to", BLOCKWISE, *SKIP)
    assert digests(tmp_path / "made") == digests(tmp_path / "whole")
    assert not (tmp_path / "made.partial").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, source: Path) -> None:
    arguments = ("produce", source, tmp_path / "made", "--to", BLOCKWISE, *SKIP)
    (tmp_path / "made.partial").mkdir()
    (tmp_path / "made.partial" / "thesis.tex").write_text("mine")
    (violation,) = refused(*arguments)
    assert (violation["code"], violation["found"]) == ("partial-foreign", "thesis.tex")
    (tmp_path / "made.partial" / "state.json").write_text("{}")
    assert refused(*arguments)[0]["code"] == "partial-foreign"
    assert (tmp_path / "made.partial" / "thesis.tex").read_text() == "mine"
    shutil.rmtree(tmp_path / "made.partial")
    (tmp_path / "made.partial").mkdir()  # as a run leaves it that is killed at once
    done(*arguments)


def test_a_destination_that_was_made_meanwhile_is_not_taken_for_what_the_run_made(tmp_path: Path, unfinished: tuple[Any, ...]) -> None:
    (tmp_path / "made").mkdir()
    assert refused(*unfinished)[0]["code"] == "destination-exists"
    assert list((tmp_path / "made").iterdir()) == []
    (tmp_path / "made").rmdir()
    assert done(*unfinished)["shards_resumed"] == 2


def test_what_others_put_beside_the_unfinished_work_stays(tmp_path: Path, unfinished: tuple[Any, ...]) -> None:
    partial = tmp_path / "made.partial"
    (partial / "notes").mkdir()
    (partial / "thesis.tex").write_text("mine")
    assert done(*unfinished)["shards_resumed"] == 2
    assert sorted(path.name for path in partial.iterdir()) == ["notes", "thesis.tex"]
    assert refused(*unfinished)[0]["code"] == "destination-exists"


def test_a_link_to_a_folder_is_removed_from_the_unfinished_work_and_its_target_is_not(tmp_path: Path, unfinished: tuple[Any, ...]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    (tmp_path / "made.partial" / "checkpoint" / "link").symlink_to(tmp_path / "folder")
    assert done(*unfinished)["shards_resumed"] == 2
    assert not os.path.lexists(tmp_path / "made" / "link")
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "mine"


def test_two_at_once(tmp_path: Path, source: Path, unfinished: tuple[Any, ...]) -> None:
    descriptor = os.open(tmp_path / "made.partial", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        assert refused(*unfinished)[0]["code"] == "destination-busy"
    finally:
        os.close(descriptor)
    assert done(*unfinished)["shards_resumed"] == 2


def test_killed_between_the_rename_and_the_end(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("produce", source, tmp_path / "made", "--to", BLOCKWISE, *SKIP)

    def killed(output: UnfinishedOutput) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(UnfinishedOutput, "remove", killed)
    with pytest.raises(click.Abort):
        run(*arguments)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "made.partial"]
    before = digests(tmp_path / "made")
    assert refused(*arguments, "--skip", "*norm*")[0]["code"] == "destination-exists"
    assert done(*arguments)["shards_resumed"] == 6
    assert digests(tmp_path / "made") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]
    assert refused(*arguments)[0]["code"] == "destination-exists"


def test_a_source_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = many_shards(tmp_path / "source", 2, rows=128)
    right: Callable[..., int] = os.pwrite

    def pwrite(descriptor: int, data: Any, place: int) -> int:
        os.utime(source / "model-00001-of-00002.safetensors")
        return right(descriptor, data, place)

    monkeypatch.setattr(shard_writing.os, "pwrite", pwrite)
    (violation,) = refused("produce", source, tmp_path / "made", "--to", BLOCKWISE)
    assert violation["code"] == "file-changed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_an_output_error_is_no_refusal() -> None:
    assert not issubclass(OutputError, OSError)


@pytest.mark.parametrize("stops_after", [0, 1])
def test_a_run_that_is_killed_while_it_removes_the_folder_is_known_to_have_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops_after: int
) -> None:
    """The state goes last, after what a run before left of it half-written."""
    unlink, left = Path.unlink, [stops_after]

    def stopping(path: Path, *arguments: Any, **named: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        unlink(path, *arguments, **named)

    with UnfinishedOutput(tmp_path / "made", {"source": "x"}) as output:
        output.publish()
        (output.folder / "state.json.writing").write_bytes(b"half")
        monkeypatch.setattr(Path, "unlink", stopping)
        with pytest.raises(KeyboardInterrupt):
            output.remove()
        monkeypatch.undo()
    with UnfinishedOutput(tmp_path / "made", {"source": "x"}) as output:
        assert output.published
        output.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


PIPELINE = ["README.md", "a/config.json", "a/x.safetensors", "z/config.json", "z/tokenizer.json", "zoo.txt", "model_index.json"]
CHECKPOINT = ["README.md", "a.safetensors", "model.safetensors.index.json", "tokenizer.json", "config.json"]


@pytest.mark.parametrize(("names", "kept"), [(PIPELINE, "a/x.safetensors"), (CHECKPOINT, "a.safetensors")])
def test_a_run_that_is_killed_while_it_tidies_up_leaves_nothing_that_looks_whole(
    names: list[str], kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run before it came as far as the last file; the next one removes all but finished shards, and stops after any number."""
    last, unlink = names[-1], Path.unlink
    for stops_after in range(len(names) + 2):  # each folder has its mark as well
        with UnfinishedOutput(tmp_path / f"{last}-{stops_after}", {"source": "x"}) as output:
            for name in names:
                output.path(name).write_bytes(b"")
            left = [stops_after]

            def stopping(path: Path, *arguments: Any, left: list[int] = left, **named: Any) -> None:
                if left[0] == 0:
                    raise KeyboardInterrupt
                left[0] -= 1
                unlink(path, *arguments, **named)

            monkeypatch.setattr(Path, "unlink", stopping)
            with contextlib.suppress(KeyboardInterrupt):
                output.keep_only([kept])
            monkeypatch.setattr(Path, "unlink", unlink)
            there = [name for name in names if (output.checkpoint / name).exists()]
            assert last not in there or there == names, stops_after
    assert there == [kept]

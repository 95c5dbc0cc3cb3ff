"""`make quick` runs the tests of the rooms that changed, those that say most of them first, and names what it had no time for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import quick

PACKAGES = ("tensorhub_contracts", "decoders/tensorhub_decoders", "cuda/tensorhub_cuda")


def folders(changed: list[str]) -> list[str]:
    """Return the folders of the tests that are chosen, in the order in which they are first run."""
    return list(dict.fromkeys(file.rpartition("/")[0] for file in quick.choose(changed)))


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (
            "tensorhub_contracts/inspection/units/grouping.py",
            ["tests/inspecting", "tests/layouts", "tests/registry", "tests/containers", "tests/reports"],
        ),
        ("tensorhub_contracts/hub/verdict.py", ["tests/goldens", "tests/satisfies"]),
        ("tensorhub_contracts/loading.py", ["tests/decoders"]),
        ("decoders/tensorhub_decoders/converting/plan.py", ["tests/producing"]),
        ("README.md", [*quick.FAST]),
        ("tests/support/trees.py", [*quick.FAST]),
    ],
)
def test_a_change_runs_the_tests_of_its_room(changed: str, chosen: list[str]) -> None:
    assert folders([changed]) == [*quick.ALWAYS, *chosen]


def test_a_changed_test_runs_first_and_once() -> None:
    files = quick.choose(["tensorhub_contracts/lanes/derive.py", "tests/plugins/test_metadata.py"])
    assert files[0] == "tests/plugins/test_metadata.py"
    assert len(set(files)) == len(files)
    assert quick.choose(["tests/plugins/test_metadata.py"]) == ["tests/plugins/test_metadata.py", *quick.files_of("tests/architecture")]


def test_the_tests_that_say_most_of_a_room_run_first() -> None:
    files = quick.choose(["decoders/tensorhub_decoders/resident/linear.py"])
    resident = [place for place, file in enumerate(files) if "/resident/" in file]
    others = [place for place, file in enumerate(files) if "/decoders/" in file]
    assert resident
    assert max(resident) < min(others)


def test_two_rooms_take_turns() -> None:
    both = folders(["tensorhub_contracts/hub/verdict.py", "tensorhub_contracts/checkpoints/header.py"])
    assert both == ["tests/architecture", "tests/goldens", "tests/containers", "tests/satisfies", "tests/attacks", "tests/layouts"]


def test_a_test_that_was_deleted_is_not_run() -> None:
    assert quick.choose(["tests/plugins/test_gone.py"]) == list(quick.files_of("tests/architecture"))


def test_everything_that_is_named_is_there() -> None:
    named = {*quick.ALWAYS, *quick.FAST, *(tests for room in quick.ROOMS.values() for tests in room)}
    assert [each for each in named if not list(quick.files_of(each))] == []
    assert [room for room in quick.ROOMS if not list(quick.ROOT.glob(f"{room}*"))] == []


def test_every_module_has_a_room_and_every_test_folder_is_of_one() -> None:
    modules = [path.relative_to(quick.ROOT).as_posix() for package in PACKAGES for path in (quick.ROOT / package).rglob("*.py")]
    assert [module for module in modules if folders([module]) == folders(["README.md"])] == []
    named = {file for room in quick.ROOMS.values() for tests in room for file in quick.files_of(tests)}
    every = {path.relative_to(quick.ROOT).as_posix() for path in (quick.ROOT / "tests").rglob("test_*.py")}
    assert every - named == set(quick.files_of("tests/architecture"))


def run_until(seconds: float, tmp_path: Path, *arguments: str) -> str:
    """Run three tests, the first of which takes a second, with a deadline so many seconds from now."""
    slow, fast = tmp_path / "test_slow.py", tmp_path / "test_fast.py"
    slow.write_text("import time\ndef test_slow(): time.sleep(1)\ndef test_after(): pass\n")
    fast.write_text("def test_fast(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "tools.quick_deadline", f"--deadline={time.time() + seconds}", "-c"]
    done = subprocess.run(
        [*command, tmp_path / "pytest.ini", "-p", "no:cacheprovider", *arguments, slow, fast],
        cwd=quick.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_there_is_no_time_for_is_not_started_and_named(tmp_path: Path) -> None:
    told = run_until(0, tmp_path, "-n", "1")
    assert "3 skipped" in told
    assert "no time was left for test_slow.py" in told
    assert "no time was left for test_fast.py" in told


def test_what_there_is_time_for_runs(tmp_path: Path) -> None:
    assert "3 passed" in run_until(60, tmp_path)

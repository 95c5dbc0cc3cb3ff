"""What needs no torch runs on every Python that the metadata names and the machine has; nothing is left out without a word."""

from __future__ import annotations

import sys
from pathlib import Path

import light_tests
import other_pythons
import pytest

ROOT = Path(__file__).parents[2]


def test_each_version_of_the_metadata_but_the_running_one() -> None:
    classifiers = [
        "Programming Language :: Python :: 3",
        "Typing :: Typed",
        *(f"Programming Language :: Python :: 3.{n}" for n in (9, 11, 14)),
    ]
    assert other_pythons.other_versions(classifiers, (3, 11)) == ["3.9", "3.14"]
    assert other_pythons.other_versions(classifiers, (3, 1)) == ["3.9", "3.11", "3.14"]


def interpreter(path: Path, exit_code: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


def test_a_python_on_the_path_is_taken_before_one_of_pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = interpreter(tmp_path / "bin" / "python9.7", 0)
    interpreter(tmp_path / "pyenv/versions/9.7.2/bin/python9.7", 0)
    monkeypatch.setenv("PATH", str(there.parent))
    assert other_pythons.find_python("9.7", tmp_path / "pyenv") == str(there)


def test_a_shim_that_does_not_answer_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = interpreter(tmp_path / "bin" / "python9.7", 127)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert other_pythons.find_python("9.7", tmp_path / "pyenv") is None
    interpreter(tmp_path / "pyenv/versions/9.70.1/bin/python9.7", 0)
    assert other_pythons.find_python("9.7", tmp_path / "pyenv") is None
    installed = interpreter(tmp_path / "pyenv/versions/9.7.2/bin/python9.7", 0)
    assert other_pythons.find_python("9.7", tmp_path / "pyenv") == str(installed)


def run_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], codes: dict[str, int | None]
) -> tuple[int, list[str], list[str]]:
    """Run it with Pythons that pass, fail or are not there (None); return its code, what it said, and which it ran."""
    ran: list[str] = []

    def run(python: str) -> int:
        ran.append(python)
        return codes[python] or 0

    monkeypatch.setattr(other_pythons, "other_versions", lambda _: list(codes))
    monkeypatch.setattr(other_pythons, "find_python", lambda version: None if codes[version] is None else version)
    monkeypatch.setattr(other_pythons, "run_make", run)
    code = other_pythons.main()
    return code, capsys.readouterr().out.splitlines(), ran


def test_one_that_fails_fails_all_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, told, ran = run_main(monkeypatch, capsys, {"9.1": 2, "9.2": None, "9.3": 0})
    assert code == 1
    assert ran == ["9.1", "9.3"]
    assert told == ["Python 9.1: FAILED", "Python 9.2: not on this machine, its tests did not run", "Python 9.3: passed"]


def test_those_that_are_there_decide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(monkeypatch, capsys, {"9.1": None, "9.2": 0})[0] == 0


def test_every_test_folder_is_run_or_left_out_with_a_reason() -> None:
    folders = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.glob("**/test_*.py"))}
    assert sorted((*light_tests.LIGHT, *light_tests.LEFT_OUT)) == sorted(folders)


def test_pytests_exit_code_is_the_answer(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(light_tests, "LIGHT", ("tests/nothing/is/here",))
    assert light_tests.main(["-p", "no:cacheprovider"]) == pytest.ExitCode.USAGE_ERROR
    told = capfd.readouterr().out
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in told
    assert all(f"left out: {folder}, which {reason}" in told for folder, reason in light_tests.LEFT_OUT.items())


def test_continuous_integration_stops_at_what_fails() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert "set -euo pipefail" in lines
    steps = ["make check", "make test", ".venv/bin/python tools/other_pythons.py"]
    assert [line for line in lines if line in steps] == steps

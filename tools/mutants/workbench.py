"""Runs tests against one mutant after another, in a copy of the tree that belongs to one worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mutants.edits import Mutant
from mutants.tree import copy_tree, environment

Status = Literal["killed", "timeout", "survived", "uncovered", "equivalent"]

#: Seconds that any run may take, besides a multiple of what its tests took when nothing was changed.
_START: Final = 30.0
_SLOWER: Final = 3.0


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `by` is the test that failed, or what else went wrong; `tests` is how many were chosen."""

    mutant: Mutant
    status: Status
    by: str = ""
    tests: int = 0
    left_out: int = 0
    seconds: float = 0.0


class Workbench:
    """One copy of the tree, in which one module at a time is changed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self.copy = copy_tree(root, folder / "tree")
        self._selection = folder / "selection.json"
        self._alone: dict[str, bool] = {}

    def judge(self, mutant: Mutant, tests: dict[str, float], left_out: int) -> Verdict:
        """Run tests, the names in the order in which they are to run and their times, against a mutant.

        A test that fails on the unchanged tree as well when it is run alone says nothing, and the others are run again.
        """
        began = time.monotonic()
        while tests:
            status, by = self._with(mutant, tests)
            if by not in tests or self._passes_alone(by, tests[by]):
                return Verdict(mutant, status, by, len(tests), left_out, time.monotonic() - began)
            tests = {name: seconds for name, seconds in tests.items() if name != by}
        return Verdict(mutant, "survived", "", 0, left_out, time.monotonic() - began)

    def _with(self, mutant: Mutant, tests: dict[str, float]) -> tuple[Status, str]:
        path = self.copy / mutant.module
        original = path.read_bytes()
        try:
            path.write_bytes(mutant.source)
            self._forget_compiled(path)
            return self._run(tests)
        finally:
            path.write_bytes(original)
            self._forget_compiled(path)

    def _passes_alone(self, test: str, seconds: float) -> bool:
        if test not in self._alone:
            self._alone[test] = self._run({test: seconds})[0] == "survived"
        return self._alone[test]

    def _run(self, tests: dict[str, float]) -> tuple[Status, str]:
        """Return what became of the run, and the test that failed."""
        failed = Path(f"{self._selection}.failed")
        failed.unlink(missing_ok=True)
        self._selection.write_text(json.dumps(list(tests)))
        files = dict.fromkeys(name.partition("::")[0] for name in tests)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "mutants.selecting_plugin", *files]
        given = environment(self._root, self.copy, {"MUTANTS_SELECTION": str(self._selection)})
        process = subprocess.Popen(
            command, cwd=self.copy, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = process.wait(_START + _SLOWER * sum(tests.values()))
        except subprocess.TimeoutExpired:
            return "timeout", "the limit of time"
        finally:
            _end(process)
        if code in (0, 5):  # 5: every test that was chosen is gone
            return "survived", ""
        return "killed", failed.read_text() if failed.is_file() else f"pytest itself, which ended with {code}"

    def _forget_compiled(self, path: Path) -> None:
        """Remove what Python compiled: it tells sources apart by size and second."""
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End whatever a run leaves behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

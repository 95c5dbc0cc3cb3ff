"""Which tests execute a line, and how long each takes: recorded once for a state of the tree, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import coverage

from mutants.recording_plugin import CONTEXT, COVERAGE, SCOPE, TIMES
from mutants.tree import TreeError, copy_tree, environment, import_roots, prove_imported_from, state_of

#: For every Python that inherits the environment: coverage's own installation sees to it that each of them starts to measure,
#: and the recording plugin does in other virtual environments. What is installed there is the same as what lies in the copy.
_CONFIGURATION = """
[run]
parallel = true
data_file = {folder}/measured
context = ${{{context}-}}
include =
    {copy}/*
{installed}
disable_warnings = no-data-collected

[paths]
{same}
"""


class Recording:
    """The tests that execute each line of a tree, and their times in seconds."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "facts.json").read_text())
        self._copy = facts["copy"]
        self.seconds: dict[str, float] = facts["seconds"]
        self._data = coverage.CoverageData(str(folder / "lines"))
        self._data.read()
        self._contexts: dict[str, dict[int, list[str]]] = {}

    def tests(self, module: str, lines: range) -> set[str]:
        """Return the tests that execute one of these lines.

        If one of them is executed outside of all tests, on import, it is all that execute anything of the module.
        """
        contexts = self._contexts_of(module)
        names = {name for line in lines for name in contexts.get(line, ())}
        if "" in names:
            names = {name for found in contexts.values() for name in found}
        tests = names & self.seconds.keys()
        for scope in (name.removeprefix(SCOPE) for name in names if name.startswith(SCOPE)):
            tests |= {test for test in self.seconds if test.startswith(scope)}
        return tests

    def _contexts_of(self, module: str) -> dict[int, list[str]]:
        if module not in self._contexts:
            self._contexts[module] = self._data.contexts_by_lineno(str(Path(self._copy) / module))
        return self._contexts[module]


def recorded(root: Path, modules: Sequence[str], tests: Sequence[str], processes: int) -> Recording:
    """Return the recording of the tree as it is, for tests that files and folders name; make it if there is none."""
    folder = root / ".mutants" / state_of(root, tests)
    if not (folder / "facts.json").is_file():
        _record(root, modules, test_files(root, tests), processes, folder)
    return Recording(folder)


def test_files(root: Path, tests: Sequence[str]) -> list[str]:
    """Return the test files that files and folders name, relative to the root."""
    found = {path for each in tests for path in ([root / each] if (root / each).is_file() else (root / each).rglob("test_*.py"))}
    if not found:
        raise TreeError(f"there is no test file at {', '.join(tests)}")
    return sorted(str(path.relative_to(root)) for path in found)


def _configuration(scratch: Path, copy: Path) -> str:
    """Return coverage's configuration for a copy of the tree, and for its packages wherever they are installed."""
    roots = [copy / folder for folder in import_roots(copy)]
    packages = sorted(path.parent.name for folder in roots for path in folder.glob("*/__init__.py"))
    modules = sorted(path.name for folder in roots for path in folder.glob("*.py"))
    installed = [f"    */site-packages/{name}" for name in (*(f"{package}/*" for package in packages), *modules)]
    same = [f"root{number} =\n    {folder}\n    */site-packages" for number, folder in enumerate(roots)]
    return _CONFIGURATION.format(folder=scratch, copy=copy, context=CONTEXT, installed="\n".join(installed), same="\n".join(same))


def _record(root: Path, modules: Sequence[str], files: list[str], processes: int, folder: Path) -> None:
    """Run the tests in a copy, dealt out to a few processes, and put together what they executed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        scratch = Path(temporary).resolve()
        copy = copy_tree(root, scratch / "tree")
        prove_imported_from(root, copy, modules)
        (scratch / "coveragerc").write_text(_configuration(scratch, copy))
        (scratch / "alone").mkdir()
        (scratch / "alone" / "coverage").symlink_to(Path(coverage.__file__).parent)
        print(f"recording which lines {len(files)} test files execute", flush=True)
        shares = [share for number in range(processes) if (share := files[number::processes])]
        running = []
        for number, share in enumerate(shares):
            settings = {
                "COVERAGE_PROCESS_START": str(scratch / "coveragerc"),
                COVERAGE: str(scratch / "alone"),
                TIMES: str(scratch / f"times-{number}.json"),
            }
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutants.recording_plugin", *share]
            with (scratch / f"output-{number}").open("wb") as output:
                given = environment(root, copy, settings)
                running.append(subprocess.Popen(command, cwd=copy, env=given, stdout=output, stderr=subprocess.STDOUT))
        for number, process in enumerate(running):
            if process.wait() not in (0, 1):  # some tests may fail, when every process is measured
                raise TreeError(f"the tests do not run:\n{(scratch / f'output-{number}').read_text()[-3000:]}")
        seconds: dict[str, float] = {}
        for number in range(len(shares)):
            seconds |= json.loads((scratch / f"times-{number}.json").read_text())
        folder.mkdir(parents=True, exist_ok=True)
        measured = coverage.Coverage(data_file=str(folder / "lines"), config_file=str(scratch / "coveragerc"))
        measured.combine(list(map(str, scratch.glob("measured.*"))))
        measured.save()
        if not measured.get_data().measured_files():
            raise TreeError("the tests execute nothing of the tree, or coverage does not start with Python")
        facts = json.dumps({"copy": os.fspath(copy), "seconds": seconds})
        (folder / "facts.json.writing").write_text(facts)
        (folder / "facts.json.writing").rename(folder / "facts.json")

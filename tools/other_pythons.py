"""Runs `make test-light` on every other Python that the metadata names and this machine has; those that it has not are named.

Exits with 1 if the tests of any failed, after all of them have run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (\d+\.\d+)")


def main() -> int:
    """Run the tests on each version, and say at the end how each of them did."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    outcomes = {}
    for version in other_versions(metadata["project"]["classifiers"]):
        outcomes[version] = outcome(find_python(version), run_make)
    for version, words in outcomes.items():
        print(f"Python {version}: {words}")
    return int(any(words.startswith("FAILED") for words in outcomes.values()))


def other_versions(classifiers: list[str], running: tuple[int, ...] = sys.version_info[:2]) -> list[str]:
    """Return the versions of Python that the classifiers name, without the one that is running."""
    named = [found[1] for each in classifiers if (found := _CLASSIFIER.fullmatch(each))]
    return [version for version in named if version != ".".join(map(str, running))]


def find_python(version: str, pyenv: Path | None = None) -> str | None:
    """Return an interpreter of a version that answers, from the path or from pyenv, or None if this machine has none.

    The path alone says little: a shim of pyenv stands there for a version that nobody chose, and fails.
    """
    root = pyenv or Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(root.glob(f"versions/{version}.*/bin/python{version}")))]
    return next((candidate for candidate in candidates if candidate and _answers(candidate)), None)


def _answers(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def outcome(python: str | None, run: Callable[[str], int]) -> str:
    """Run the tests on an interpreter, where there is one, and say in a few words what became of them."""
    if python is None:
        return "not on this machine, its tests did not run"
    return "passed" if run(python) == 0 else "FAILED"


def run_make(python: str) -> int:
    """Run `make test-light` with an interpreter and return its exit code."""
    return subprocess.run(["make", "test-light", f"LIGHT={python}"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""The hooks of `.pre-commit-config.yaml` are the repository's own linters, as `make check` runs them."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS: list[dict[str, Any]] = [
    hook for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"] for hook in repository["hooks"]
]


def steps() -> list[list[str]]:
    """Return the commands that `make check` runs from the virtual environment, as words."""
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    return [shlex.split(line.strip().replace("$(BIN)", ".venv/bin")) for line in recipe.splitlines()[1:]]


def provided() -> set[str]:
    """Return what the requirements of `make check` bring, as commands."""
    lines = (ROOT / "requirements-check.txt").read_text("utf-8").splitlines()
    commands = {"import-linter": "lint-imports"}
    return {"python", *(commands.get(line, line) for line in lines if line and not line.startswith("#"))}


def test_there_is_a_hook_for_each_linter() -> None:
    assert [hook["name"] for hook in HOOKS] == ["ruff check", "ruff format", "mypy", "import layers", "generated pages"]
    assert len({hook["id"] for hook in HOOKS}) == len(HOOKS)


def test_nothing_is_fetched() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [each["repo"] for each in repositories] == ["local"]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_what_make_check_runs(hook: dict[str, Any]) -> None:
    words = shlex.split(hook["entry"])
    assert words in steps()
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)
    assert words[0].removeprefix(".venv/bin/") in provided()
    scripts = [word for word in words[1:] if word.endswith(".py")]
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_what_continuous_integration_runs_may_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR

"""Our environment variables begin with a prefix that nobody else owns; by the names that they had they are not read, and not silently."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import tensorhub

ROOT = Path(__file__).parents[2]

#: What the public worker owns: an unknown variable that begins so, in its settings file, stops it.
OWNED_BY_THE_WORKER = ("TENSORHUB_", "GEN_WORKER_", "WORKER_", "COZY_")

#: Names in capitals that are no environment variables: a module's attribute, and what tells of the names that ours had.
NO_VARIABLES = {"TENSORHUB_PLUGIN_API", "TENSORHUB_PLUGINS"}


def test_no_variable_begins_as_those_of_the_worker() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    name = re.compile(rf"(?<![A-Z_])(?:{'|'.join(OWNED_BY_THE_WORKER)})[A-Z_]+")
    found = {
        (file, each)
        for file in filter(None, listed)
        if file.endswith((".py", ".toml", ".md", ".yaml", "Makefile", "run"))
        and not file.startswith(("tests/commands/test_environment", "tests/kernels/kernel_cache/test_old", "CHANGELOG"))
        for each in name.findall((ROOT / file).read_text("utf-8"))
        if each not in NO_VARIABLES
    }
    assert found == set()


@pytest.mark.parametrize("arguments", [["plugins"], ["lanes"], ["contracts"]])
def test_the_name_that_a_variable_had_is_not_read_and_said_once(arguments: list[str]) -> None:
    plain = tensorhub(*arguments)
    old = tensorhub(*arguments, env={"TENSORHUB_PLUGINS": "-plain"})
    assert (old.code, old.out) == (plain.code, plain.out)
    said = "TENSORHUB_PLUGINS is set, and not read: the variable is TENSOR_CONTRACTS_PLUGINS"
    assert (plain.err.count(said), old.err.count(said)) == (0, 1)


def test_the_name_that_it_has_is_read() -> None:
    blocked = tensorhub("plugins", env={"TENSOR_CONTRACTS_PLUGINS": "-plain"})
    assert "blocked   plain" in blocked.out
    assert "is not read" not in blocked.err

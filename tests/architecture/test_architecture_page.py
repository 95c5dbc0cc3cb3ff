"""The page on the architecture has the rooms and the layers that the import linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

#: How many layers each package may have: more cannot be held in mind.
MOST_LAYERS = {"tensorhub_contracts": 10, "tensorhub_decoders": 6, "tensorhub_cuda": 4}


def enforced(package: str) -> list[set[str]]:
    """Return the layers of a package as the import linter has them, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (found,) = [each for each in contracts if each.get("containers") == [package]]
    assert found["exhaustive"]  # a new room has to have its place
    return [set(re.split(r" [|:] ", layer)) for layer in found["layers"]]


def described(package: str, page: str = PAGE) -> list[set[str]]:
    """Return the layers of a package as the page has them."""
    section = page.partition(f"## {package}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [set(re.findall(r"`([^`]+)`", row.split("|")[1])) for row in rows]


@pytest.mark.parametrize("package", MOST_LAYERS)
def test_the_page_has_the_layers_that_are_enforced(package: str) -> None:
    assert described(package) == enforced(package)
    assert len(enforced(package)) <= MOST_LAYERS[package]


def test_a_room_that_is_missing_would_be_seen() -> None:
    assert described("tensorhub_cuda", PAGE.replace("| `nvrtc` |", "| `elsewhere` |")) != enforced("tensorhub_cuda")

"""What the pages tell a reader to run and to open is there: targets of make, and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

#: A file or a folder of the repository, between backticks: it begins with one of these folders, or is one of these files.
_FOLDERS = r"tensorhub_contracts|decoders|cuda|tests|tools|benchmarks|demo|docs|template|\.ci"
_PLACE = re.compile(rf"`((?:(?:{_FOLDERS})/[\w./-]*|pyproject\.toml|registry\.toml|Makefile))`")
_TARGET = re.compile(r"(?:`|^)(?:\w+=\S+ )?make ([a-z][a-z-]*)", re.MULTILINE)


def targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def missing(page: str, makefile: str) -> list[str]:
    """Return the places of a page that the repository lacks, and the targets that the Makefile lacks."""
    places = [place for place in _PLACE.findall(page) if not (ROOT / place).exists()]
    return places + [f"make {target}" for target in _TARGET.findall(page) if target not in targets(makefile)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert missing(page.read_text("utf-8"), (ROOT / "Makefile").read_text("utf-8")) == []


def test_the_search_finds_what_is_named() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert len(set(_PLACE.findall(page))) > 20
    assert {"test", "quick", "check", "docs", "mutants"} <= set(_TARGET.findall(page))


def test_what_is_missing_would_be_seen() -> None:
    page = "Open `tests/architecture/`, `tests/gone.py`; run `make test`.\n```bash\nmake it-all\nX=1 make coffee\n```\n"
    assert missing(page, "test: x\n") == ["tests/gone.py", "make it-all", "make coffee"]

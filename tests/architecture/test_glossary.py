"""The glossary's words are used, and the links of all pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("template/*.md")])
TERMS = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY.read_text("utf-8"))


def letters(text: str) -> str:
    """Return a text without what joins words: `not_provable` and `LaneConflict` are words of the glossary too."""
    return re.sub(r"[\s_-]+", "", text.lower())


SOURCES = [*ROOT.glob("tensorhub_contracts/**/*.py"), *ROOT.glob("decoders/**/*.py"), *ROOT.glob("cuda/**/*.py"), *PAGES]
USED = "\n".join(letters(path.read_text("utf-8")) for path in SOURCES if path != GLOSSARY)


@pytest.mark.parametrize("term", TERMS)
def test_a_word_is_used_outside_the_glossary(term: str) -> None:
    assert letters(term) in USED


def test_words_stand_in_the_glossary_once() -> None:
    assert len(set(TERMS)) == len(TERMS) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []

"""The glossary is about this project: its terms and examples occur in it, and no page links to what is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.registry.names import EXECUTIONS
from tensorhub_contracts.registry.registry import load_registry

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "template").glob("*.md")])
SEARCHED = [
    *(page for page in PAGES if page != GLOSSARY),
    *(path for folder in ("tensorhub_contracts", "decoders", "cuda") for path in (ROOT / folder).rglob("*.py")),
    ROOT / "registry.toml",
]

#: A term begins its paragraph.
_TERM = re.compile(r"^- \*\*(.+?)\*\*:", re.MULTILINE)
_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

#: In prose for people; code and messages say `floor`.
_ONLY_EXPLAINED = {"minimum compute capability": "floor"}


def terms(page: str) -> list[str]:
    """The terms that a glossary explains."""
    return _TERM.findall(page)


def unused(words: list[str], text: str) -> list[str]:
    """Return the words that do not occur in a text: as words, in any case, also `a_b` and `a-b` for `a b`, and in the plural."""
    patterns = {word: "[ _-]".join(map(re.escape, word.split())) for word in words}
    return [word for word, pattern in patterns.items() if not re.search(rf"\b{pattern}s?\b", text, re.IGNORECASE)]


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page that lead to no file, or to no heading of it."""
    for link in _LINK.findall(_FENCED.sub("", page.read_text("utf-8"))):
        if "://" not in link:
            place, _, anchor = link.partition("#")
            target = page.parent / place if place else page
            if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
                yield link


def test_every_term_is_used() -> None:
    found = terms(GLOSSARY.read_text("utf-8"))
    assert len(found) == len(set(found)) > 30
    text = "\n".join(path.read_text("utf-8") for path in SEARCHED)
    assert unused([_ONLY_EXPLAINED.get(term, term) for term in found], text) == []


def test_every_handle_lane_and_code_exists() -> None:
    registry = load_registry()
    examples = re.findall(r"`([^`\s]+)`", GLOSSARY.read_text("utf-8"))
    handles = [each for each in examples if re.fullmatch(r"[\w.-]+@\d+", each)]
    lanes = [each for each in examples if re.search(r"-w\d", each)]
    codes = [each for each in examples if each.startswith(("scale-grid-", "scale-name-", "plugin-"))]
    assert handles
    assert set(handles) <= set(registry.contracts)
    assert lanes
    assert {each.partition("+")[0] for each in lanes} <= set(registry.lanes)
    assert {each.partition("+")[2] for each in lanes} <= {"", *EXECUTIONS}
    assert codes
    assert set(codes) <= set(explanations())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_the_readme_leads_to_the_glossary() -> None:
    assert "docs/glossary.md" in "".join(_LINK.findall((ROOT / "README.md").read_text("utf-8")))


def test_what_is_missing_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `title`, here\n- **scale grid**: see [a](gone.md), [b](#a-title-here), [c](#none), [d](https://example.org/e)\n")
    assert list(dead_links(page)) == ["gone.md", "#none"]
    assert terms(page.read_text("utf-8")) == ["scale grid"]
    assert unused(["unit", "scale grid", "lane body", "shard"], "SCALE_GRID, units and lanes; a reshard") == ["lane body", "shard"]

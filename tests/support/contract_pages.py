"""Reads the pages of docs/contracts/ as a specification. Imports nothing of the product; fails at any line that it does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "contracts"

#: The lines of a page that state no rule for tensors: they begin so.
_FOR_PEOPLE = ("- Status:", "- Digest:", "- Element:", "- Source:", "- Evidence:", "- Reference dequant:", "- [Lanes]")

_ONE_UNIT = "There is at least one unit. The shape of the weight gives each symbol its value, every dimension at least 1; `/` rounds up."
_NO_SCALE = "No weight has a scale, and nothing that lies beside a weight may be one."
_VECTORS_AS_MATRICES = "Where there is no matrix, this holds for vectors and scalars as it does for matrices."
_TWO_DTYPES = "Matrices have two dtypes or more."
_NOTHING_DECLARES = "Nothing declares it. A quantization declaration in a configuration file is a refusal."
_NUMBERED = "`{number}` counts from 0 without a gap; these weights share the other tensors of `{module}`."
_UNDECLARED = {
    "A checkpoint that declares nothing is not in this contract.": "never",
    "A checkpoint that declares nothing is in this contract if its tensors are.": "allowed",
    "A checkpoint that declares nothing is in this contract if its tensors are, and are in no other contract.": "if-unique",
}
_PLACES = {
    "`quantization_config` of `config.json`, at any depth": "quantization_config",
    "`quantization` of `hf_quant_config.json`": "hf_quant_config",
    "`quantization` of `params.json`": "params",
    "`_quantization_metadata` of the headers' metadata": "header_metadata",
}

#: A shape: sizes as text, such as `out`, `in/128`, `in/16^4`, `out^128*in/16^4` or `16`.
Shape = tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One tensor of a form."""

    role: str
    optional: bool
    name: str
    dtypes: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @property
    def numbered(self) -> bool:
        return "{number}" in self.name

    @property
    def pattern(self) -> re.Pattern[str]:
        """Match a name, with what its placeholders stand for as groups."""
        text = re.escape(self.name)
        for placeholder, group in (("{module}", "(?P<stem>.+)"), ("{param}", "(?P<stem>.+)"), ("{number}", "(?P<number>0|[1-9][0-9]*)")):
            text = text.replace(re.escape(placeholder), group)
        return re.compile(text)

    def named(self, stem: str, number: int = 0) -> str:
        """Return the name of the tensor for a module or parameter."""
        return self.name.replace("{module}", stem).replace("{param}", stem).replace("{number}", str(number))


@dataclass
class Form:
    """One way in which a unit is written: its weight and the tensors that scale it."""

    name: str
    rows: list[Row] = field(default_factory=list)
    required: bool = False

    @property
    def weight(self) -> Row:
        return self.rows[0]


@dataclass(frozen=True)
class Requirement:
    """What one key of a declaration must say: one of `values`, null, or an object of the listed keys."""

    key: str
    values: tuple[Any, ...] = ()
    null: bool = False
    keys: tuple[str, ...] = ()
    optional: bool = False
    absent: bool = False


@dataclass
class Declared:
    """What one place must hold for a checkpoint to be declared."""

    place: str
    require: list[Requirement] = field(default_factory=list)
    #: The key of an object that has a member for each module with a unit, and no other.
    modules: str = ""


@dataclass
class Page:
    """All rules of a page."""

    handle: str
    forms: list[Form] = field(default_factory=list)
    multiples: dict[str, int] = field(default_factory=dict)
    matrices: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    two_dtypes: bool = False
    vectors_as_matrices: bool = False
    no_scale: bool = False
    free_sizes: set[str] = field(default_factory=set)
    declared: list[Declared] = field(default_factory=list)
    undeclared: str = ""
    #: The last segment of a name, with dtypes and shapes.
    markers: list[tuple[str, tuple[str, ...], tuple[tuple[int, ...], ...]]] = field(default_factory=list)


def read_pages() -> dict[str, Page]:
    """Return every page by its handle, in the order of the index."""
    linked = re.findall(r"^\| \[`[^`]+`\]\(([^)]+)\)", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(linked) == sorted(each.name for each in FOLDER.glob("*.md") if each.name != "README.md")
    pages = [read_page((FOLDER / name).read_text("utf-8")) for name in linked]
    return {page.handle: page for page in pages}


def read_page(text: str) -> Page:
    """Read one page; raise ValueError at a line that states nothing known."""
    lines = [line for line in text.splitlines() if line and not line.startswith("<!--")]
    page = Page(_matched(r"# `([^`]+)`", lines[0])[1])
    section = ""
    for line in lines[2:]:  # the second is the summary
        if line.startswith("## "):
            section = line[3:]
        elif not _read_line(page, section, line):
            raise ValueError(f"{page.handle}: nothing known of {line!r} under {section!r}")
    if not page.matrices or not page.undeclared:
        raise ValueError(f"{page.handle}: a part is missing")
    symbols = {symbol for form in page.forms for row in form.rows[1:] for shape in row.shapes for symbol in _symbols(shape)}
    bound = {symbol for form in page.forms for shape in form.weight.shapes for symbol in _symbols(shape)}
    if symbols - bound != page.free_sizes:
        raise ValueError(f"{page.handle}: what {symbols - bound} stand for is not said")
    return page


def _read_line(page: Page, section: str, line: str) -> bool:
    readers = {
        "": _read_fact,
        "Units": _read_unit_line,
        "Markers": _read_marker,
        "Tensors that nothing scales": _read_unquantized,
        "Declaration": _read_declaration,
        "What headers cannot show": lambda page, line: line.startswith("- "),
    }
    return section in readers and bool(readers[section](page, line))


def _read_fact(page: Page, line: str) -> bool:
    found = re.fullmatch(r"- `(\w+)` is a multiple of (\d+)", line)
    if found:
        page.multiples[found[1]] = int(found[2])
    return bool(found) or line.startswith(_FOR_PEOPLE)


def _read_unit_line(page: Page, line: str) -> bool:
    if line in ("| form | role | name | dtypes | shape |", "|---|---|---|---|---|", _ONE_UNIT):
        return True
    if line == _NO_SCALE:
        page.no_scale = True
        return True
    if line == _NUMBERED:
        return any(row.numbered for form in page.forms for row in form.rows)
    if found := re.fullmatch(r"`(\w+)` is any size, at least 1\.", line):
        page.free_sizes.add(found[1])
        return True
    if found := re.fullmatch(r"There is at least one unit of the form `([^`]+)`\.", line):
        next(form for form in page.forms if form.name == found[1]).required = True
        return True
    found = re.fullmatch(r"\| ([\w-]+) \| (\w+)( \(optional\))? \| `([^`]+)` \| ([\w, ]+) \| `([^`]+)` \|", line)
    if not found:
        return False
    if not page.forms or page.forms[-1].name != found[1]:
        page.forms.append(Form(found[1]))
    shapes = tuple(_read_shape(each) for each in found[6].split(" or "))
    page.forms[-1].rows.append(Row(found[2], bool(found[3]), found[4], tuple(found[5].split(", ")), shapes))
    return page.forms[-1].weight.role == "weight"


def _read_shape(text: str) -> Shape:
    inner = _matched(r"\[(.*)\]", text)[1]
    sizes = tuple(inner.split(", ")) if inner else ()
    for size in sizes:
        _matched(r"\d+|[a-z_]+(/\d+)?(\^\d+)?(\*[a-z_]+(/\d+)?(\^\d+)?)*", size)
    return sizes


def _symbols(shape: Shape) -> Iterator[str]:
    for size in shape:
        yield from re.findall(r"[a-z_]+", size)


def _read_marker(page: Page, line: str) -> bool:
    if line in ("| name | dtypes | shape |", "|---|---|---|", "At the root or under any prefix; it is no part of the model."):
        return True
    found = re.fullmatch(r"\| `(\w+)` \| ([\w, ]+) \| `([^`]+)` \|", line)
    if found:
        shapes = tuple(tuple(map(int, _read_shape(each))) for each in found[3].split(" or "))
        page.markers.append((found[1], tuple(found[2].split(", ")), shapes))
    return bool(found)


def _read_unquantized(page: Page, line: str) -> bool:
    if line == _TWO_DTYPES:
        page.two_dtypes = True
    elif line == _VECTORS_AS_MATRICES:
        page.vectors_as_matrices = True
    elif found := re.fullmatch(r"Matrices are ([\w, ]+); vectors and scalars are ([\w, ]+)\.", line):
        page.matrices, page.vectors = tuple(found[1].split(", ")), tuple(found[2].split(", "))
    else:
        return False
    return True


def _read_declaration(page: Page, line: str) -> bool:
    if line == _NOTHING_DECLARES:
        return not page.declared
    if line in _UNDECLARED:
        page.undeclared = _UNDECLARED[line]
        return True
    if found := re.fullmatch(r"In (.+):", line):
        page.declared.append(Declared(_PLACES[found[1]]))
        return True
    if found := re.fullmatch(r"- `([\w.*]+)` has a member for the module of each unit, and no other", line):
        page.declared[-1].modules = found[1]
        return True
    if found := re.fullmatch(r"- `([\w.*]+)` holds no key but (.+)", line):
        page.declared[-1].require.append(Requirement(found[1], keys=tuple(re.findall("`([^`]+)`", found[2]))))
        return True
    found = re.fullmatch(r"- `([\w.*]+)` = (null, or absent|`[^`]+`(?: or `[^`]+`)*)(, if it is there)?(, or the key is absent)?", line)
    if not found:
        return False
    values = tuple(json.loads(each) for each in re.findall("`([^`]+)`", found[2]))
    page.declared[-1].require.append(
        Requirement(found[1], values, null=not values, optional=bool(found[3]), absent=bool(found[4])),
    )
    return True


def _matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    if not found:
        raise ValueError(f"{text!r} is not {pattern!r}")
    return found

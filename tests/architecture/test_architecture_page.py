"""docs/architecture.md shows the rooms as they are: those of the import linter's layers and of the folders, in their order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
FOLDERS = {
    "tensorhub_contracts": ROOT / "tensorhub_contracts",
    "tensorhub_decoders": ROOT / "decoders" / "tensorhub_decoders",
    "tensorhub_cuda": ROOT / "cuda" / "tensorhub_cuda",
}
MOST_LAYERS = {"tensorhub_contracts": 10, "tensorhub_decoders": 6, "tensorhub_cuda": 4}

#: What the diagram shows beside the rooms of each package: the packages themselves.
PACKAGES = "packages"


def normalized(layer: str) -> str:
    """A layer with its rooms sorted: their order on a line says nothing, the sign between them does."""
    signs = re.findall("[|:]", layer)
    assert len(set(signs)) <= 1, layer
    return (f" {signs[0]} " if signs else "").join(sorted(re.split(r"\s*[|:]\s*", layer.strip())))


def linter_layers(linter: dict[str, Any]) -> dict[str, list[str]]:
    """The layers that the import linter enforces, from the top: by package, and of the packages themselves."""
    contracts = [each for each in linter["contracts"] if each["type"] == "layers"]
    return {each.get("containers", [PACKAGES])[0]: [normalized(layer) for layer in each["layers"]] for each in contracts}


def page_layers(page: str) -> dict[str, list[str]]:
    """The layers of the page's diagram: a name at the margin begins a package, each line below it is a layer."""
    block = next(block for block in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if block.startswith(PACKAGES))
    found: dict[str, list[str]] = {}
    for line in filter(None, block.splitlines()):
        if line.startswith(" "):
            found[list(found)[-1]].append(normalized(line))
        else:
            found[line] = []
    return found


def page_rooms(page: str) -> dict[str, list[str]]:
    """The rooms of the page's tables, by package: the first cell of each row; a row has a purpose and a rule."""
    rooms: dict[str, list[str]] = {}
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        package = section.split("`")[1]
        rooms[package] = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE)
    return rooms


def rooms_of(layers: list[str]) -> list[str]:
    return [room for layer in layers for room in re.split(r" [|:] ", layer)]


def rooms_on_disk(folder: Path) -> set[str]:
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_the_diagram_has_the_layers_of_the_linter() -> None:
    assert page_layers(PAGE) == linter_layers(LINTER)


@pytest.mark.parametrize("package", FOLDERS)
def test_the_table_has_the_rooms_of_the_package(package: str) -> None:
    layers = linter_layers(LINTER)[package]
    rooms = page_rooms(PAGE)[package]
    assert len(rooms) == len(set(rooms))
    assert set(rooms) == set(rooms_of(layers)) == rooms_on_disk(FOLDERS[package])
    places = {room: place for place, layer in enumerate(layers) for room in rooms_of([layer])}
    assert [places[room] for room in rooms] == sorted(places[room] for room in rooms)


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_has_few_layers_and_all_its_rooms_are_in_them(package: str) -> None:
    contract = next(each for each in LINTER["contracts"] if each.get("containers") == [package])
    assert contract["exhaustive"] is True
    assert "ignore_imports" not in contract
    assert 1 < len(contract["layers"]) <= MOST_LAYERS[package]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  hub\n  inspection | lanes\n", "  inspection | lanes\n  hub\n"),
        ("  plugins\n", ""),
        ("  plugins\n", "  plugins\n  cellar\n"),
        ("inspection | lanes", "inspection : lanes"),
        ("  inspection | lanes\n", "  inspection\n  lanes\n"),
        ("  tensorhub_contracts | tensorhub_cuda\n", "  tensorhub_cuda\n"),
    ],
    ids=["order", "missing", "extra", "sign", "split", "package"],
)
def test_another_diagram_would_be_seen(before: str, after: str) -> None:
    assert before in PAGE
    assert page_layers(PAGE.replace(before, after, 1)) != linter_layers(LINTER)

"""Which of several metadata a plugin counts as declared by, and whether its module is a file of that distribution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import Installer, Site, metadata_folder, project
from tests.support.plugin_sources import contracts, int8, owning, plugin

DECLARES = "[tensorhub.decoders]\nint8 = acme_int8\n"


def egg_info(folder: Path, version: str = "1.0") -> Path:
    place = folder / "acme_int8.egg-info"
    place.mkdir(parents=True)
    (place / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: acme-int8\nVersion: {version}\n")
    (place / "entry_points.txt").write_text(DECLARES)
    return place


def with_the_module_elsewhere(install: Installer, *folders: Path, text: str = "") -> dict[str, Any]:
    """The plugin `int8`, declared in some folders, of which none has its module."""
    site = install(project("squatter", {}, {"acme_int8.py": text or owning(contracts())})).and_folder(*folders)
    return site.by_name()["int8"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("a", "egg-info", "1.0"), ("b", "dist-info", "1.0"), id="a-wheel-before-a-source-tree"),
        pytest.param(("b", "egg-info", "2.0"), ("a", "dist-info", "1.0"), id="a-wheel-before-a-newer-source-tree"),
        pytest.param(("b", "dist-info", "1.0"), ("a", "dist-info", "2.0"), id="the-newer-wheel"),
        pytest.param(("a", "dist-info", "1.0"), ("b", "dist-info", "1.0"), id="the-last-by-its-path"),
    ],
)
def test_if_none_holds_the_module_one_counts_wherever_it_stands(
    install: Installer, tmp_path: Path, first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    other, chosen = (
        egg_info(tmp_path / folder, version) if kind == "egg-info" else metadata_folder(tmp_path / folder, "acme-int8", version, DECLARES)
        for folder, kind, version in (first, second)
    )
    for folders in ((chosen.parent, other.parent), (other.parent, chosen.parent)):
        found = with_the_module_elsewhere(install, *folders)
        assert (found["state"], found["metadata"], found["version"]) == ("loaded", str(chosen), second[2])
        as_version = f", as version {first[2]}" if first[2] != second[2] else ""
        assert found["notes"] == [
            f"declared by {other} too{as_version}",
            f"its module was imported from {found['file']}, which is not a file of this distribution",
        ]


def test_a_plugin_that_cannot_be_imported_has_no_file_that_could_be_another_ones(install: Installer) -> None:
    found = install(int8(text="1 / 0\n")).by_name()["int8"]
    assert (found["state"], found["file"], found["notes"]) == ("broken", "", [])


def test_a_module_without_a_file_has_none(install: Installer) -> None:
    found = install(project("builtin", {"builtin": "time"}, {"acme_other.py": ""})).by_name()["builtin"]
    assert (found["state"], found["file"], found["notes"]) == ("broken", "", [])
    assert "states none" in found["reason"]


def test_the_working_folder_owns_no_plugin_that_cannot_be_imported(install: Installer, tmp_path: Path) -> None:
    wheel = install(int8(text="1 / 0\n"))
    other = egg_info(tmp_path / "source")
    done = wheel.tensorhub_here("plugins", "--output", "json", cwd=other.parent)
    (found,) = (each for each in json.loads(done.out)["plugins"] if each["name"] == "int8")
    assert (found["state"], found["metadata"]) == ("broken", str(wheel.path[0] / "acme_int8-1.0.dist-info"))
    assert found["notes"] == [f"declared by {other} too"]


def test_a_source_tree_holds_what_lies_in_it_whatever_its_list_of_files_says(install: Installer, tmp_path: Path) -> None:
    place = egg_info(tmp_path / "source")
    (place / "SOURCES.txt").write_text("setup.py\n")
    (place.parent / "acme_int8.py").write_text(owning(contracts()))
    found = install().and_folder(place.parent).by_name()["int8"]
    assert (found["state"], found["notes"]) == ("loaded", [])


def damaged_url(text: str) -> Any:
    return lambda metadata: (metadata / "direct_url.json").write_text(text)


def circle(metadata: Path) -> None:
    (metadata / "direct_url.json").unlink(missing_ok=True)
    (metadata / "direct_url.json").symlink_to("direct_url.json")


#: What may be wrong with what says whose file a module is.
DAMAGES = {
    "no-json": damaged_url("{"),
    "nested": damaged_url("[" * 100_000),
    "no-object": damaged_url("[1]"),
    "no-folder": damaged_url('{"dir_info": {"editable": true}}'),
    "no-text": damaged_url('{"dir_info": {"editable": true}, "url": 7}'),
    "circle": circle,
    "list-of-files": lambda metadata: (metadata / "RECORD").write_text("acme_int8.py,,\n\nmore,than,three,columns\n"),
    "size-of-a-file": lambda metadata: (metadata / "RECORD").write_text("acme_int8.py,,much\n"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_proves_nothing_and_stops_nothing(install: Installer, tmp_path: Path, kind: str) -> None:
    site = Site(install.base, (install.changed(int8(), tmp_path / "copy"),))
    assert site.by_name()["int8"]["notes"] == []
    DAMAGES[kind](tmp_path / "copy" / "acme_int8-1.0.dist-info")
    found = site.by_name()["int8"]
    assert found["state"] == "loaded"
    assert found["notes"] == [f"its module was imported from {found['file']}, which is not a file of this distribution"]


def test_a_file_that_an_installer_links_to_its_store_is_the_distributions(install: Installer, tmp_path: Path) -> None:
    site = Site(install.base, (install.changed(int8(), tmp_path / "copy"),))
    module = tmp_path / "copy" / "acme_int8.py"
    module.rename(tmp_path / "4f1a")
    module.symlink_to(tmp_path / "4f1a")
    found = site.by_name()["int8"]
    assert (found["file"], found["notes"]) == (str(module), [])


def test_a_foreign_finder_whose_distribution_cannot_be_read_is_listed_by_its_kind(install: Installer, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("""
import importlib.metadata, sys
class Odd(importlib.metadata.Distribution):
    def read_text(self, name):
        raise RuntimeError("not today")
    def locate_file(self, path):
        return path
class Finder:
    def find_spec(self, name, path=None, target=None):
        return None
    def find_distributions(self, context=None):
        return iter([Odd()]) if FINDS else 1 / 0
""")
    text = (tmp_path / "sitecustomize.py").read_text()
    for finds, damaged in (
        ("True", {"metadata": "Odd", "reason": "RuntimeError: not today"}),
        ("False", {"metadata": "finder Finder", "reason": "ZeroDivisionError: division by zero"}),
    ):
        (tmp_path / "sitecustomize.py").write_text(f"FINDS = {finds}\n{text}sys.meta_path.append(Finder())\n")
        assert install(plugin("acme", "")).and_folder(tmp_path).plugins()["damaged"] == [damaged]

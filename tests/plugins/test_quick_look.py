"""An inspection looks whether a plugin beside the shipped ones can be there, and loads none if it is sure: both ways give one answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Installer, Site, metadata_folder
from tests.support.plugin_sources import INT8, int8

#: Says whether an inspection has loaded plugins.
LOADS = """
import sys
from tensorhub_contracts import inspect
inspect(sys.argv[1]).require()
print("tensorhub_contracts.plugins.host" in sys.modules)
"""


def loads_plugins(site: Site, tree: Path, selection: str = "") -> bool:
    done = site.python(LOADS, tree, selection=selection)
    assert done.code == 0, done.err
    return done.out == "True\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})


def test_no_plugin_is_loaded_where_there_is_none(install: Installer, tmp_path: Path, tree: Path) -> None:
    metadata_folder(tmp_path / "others", "other", "1.0", "[console_scripts]\nother = other:main\n")
    metadata_folder(tmp_path / "others", "bare")
    (tmp_path / "others" / "old-1.0.egg-info").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1.0\n")
    (tmp_path / "others" / "unreadable-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    site = install().and_folder(tmp_path / "others", tmp_path / "missing")
    assert not loads_plugins(site, tree)
    assert not loads_plugins(site, tree, selection=" ")
    assert loads_plugins(site, tree, selection=",")
    assert loads_plugins(install(int8()), tree)


@pytest.mark.parametrize("safe", ["", "1"], ids=["", "without-the-working-folder"])
def test_a_folder_that_is_missing_hides_none_behind_it(install: Installer, tmp_path: Path, safe: str) -> None:
    done = install(int8()).and_folder(tmp_path / "missing", tmp_path / "too").tensorhub("contracts", env={"PYTHONSAFEPATH": safe})
    assert done.code == 0, done.err
    assert INT8 in done.out


def test_a_plugin_in_the_working_folder_is_seen(install: Installer) -> None:
    here = install.installed(int8())
    done = install().tensorhub_here("contracts", cwd=here)
    assert done.code == 0, done.err
    assert INT8 in done.out
    assert INT8 not in install().tensorhub("contracts", cwd=here).out


def test_a_second_copy_of_our_metadata_is_judged_as_the_listing_judges_it(install: Installer, tmp_path: Path, tree: Path) -> None:
    metadata_folder(tmp_path / "other", "tensorhub-contracts", "0.0.1", "[tensorhub.decoders]\nplain = tensorhub_decoders.dense\n")
    site = install().and_folder(tmp_path / "other")
    assert site.tensorhub("plugins", "--strict").code == 3
    assert site.tensorhub("inspect", tree, "--decodable").code == 0  # a name does not make it ours, and ours keeps its own
    assert install().tensorhub("inspect", tree, "--decodable").code == 0


def test_metadata_in_capitals_is_seen(install: Installer, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(install.installed(int8()), folder)
    (folder / "acme_int8-1.0.dist-info").rename(folder / "acme_int8-1.0.DIST-INFO")
    site = install().and_folder(folder)
    assert site.by_name()["int8"]["state"] == "loaded"
    assert INT8 in site.tensorhub("contracts").out


def test_metadata_of_a_source_tree_is_seen(install: Installer, tmp_path: Path) -> None:
    (tmp_path / "acme_int8.egg-info").mkdir()
    (tmp_path / "acme_int8.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: acme-int8\nVersion: 1.0\n")
    (tmp_path / "acme_int8.egg-info" / "entry_points.txt").write_text("[tensorhub.decoders]\nint8 = acme_int8\n")
    shutil.copy(install.installed(int8()) / "acme_int8.py", tmp_path)
    site = install().and_folder(tmp_path)
    assert site.by_name()["int8"]["state"] == "loaded"
    assert INT8 in site.tensorhub("contracts").out

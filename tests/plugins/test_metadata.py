"""Metadata of installed distributions: damaged, missing, plenty, and of finders that know none."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Environment, Installer, Site, metadata_folder, names
from tests.support.plugin_sources import INT8, contracts, int8, owning

DECLARES = "[tensorhub.decoders]\nghost = acme_ghost\n"

#: Kind of damage to content of entry_points.txt, whether there is METADATA, and what is said.
DAMAGES: Mapping[str, tuple[str | bytes | None, bool, str]] = {
    "empty": (None, False, "no METADATA"),
    "no-metadata": (DECLARES, False, "no METADATA; it declares ghost"),
    "undecodable": (b"[tensorhub.decoders]\nghost = \xff\xfe\n", True, "UnicodeDecodeError"),
    "no-equals": ("[tensorhub.decoders]\nghost\n", True, ""),
    "no-section": ("ghost = acme_ghost\n[tensorhub.decoders]\nother\n", True, ""),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_b3_06_damaged_metadata_is_survived_and_listed_by_its_path(install: Installer, tmp_path: Path, kind: str) -> None:
    entry_points, metadata, said = DAMAGES[kind]
    damaged = metadata_folder(tmp_path / "damaged", "ghost", "1.0", entry_points, metadata=metadata)
    site = install(int8()).and_folder(tmp_path / "damaged")
    for each in (site, site.ordered(1, 0)):
        report = each.plugins()
        (found,) = report["damaged"]
        assert found["metadata"] == str(damaged)
        assert said in found["reason"]
        assert names(report["plugins"], "loaded") == ["cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "int8", "plain"]
        assert len(report["plugins"]) == 5
    assert f"damaged metadata: {damaged}: " in site.tensorhub("plugins").out
    lanes = site.lanes()
    assert lanes["scan"] == {"distributions": 11, "damaged": 1, "plugins": 5}
    assert lanes["digest"] == install(int8()).lanes()["digest"]
    assert "11 distributions, 1 of them with damaged metadata: 5 plugins" in site.tensorhub("lanes").out


def test_b3_06_an_entry_point_file_that_cannot_be_read_is_listed(install: Installer, tmp_path: Path) -> None:
    place = metadata_folder(tmp_path / "damaged", "ghost")
    (place / "entry_points.txt").mkdir()
    report = install(int8()).and_folder(tmp_path / "damaged").plugins()
    assert [each["metadata"] for each in report["damaged"]] == [str(place)]
    assert len(names(report["plugins"], "loaded")) == 5


def test_b3_06_damage_of_a_plugin_that_was_installed_is_listed(install: Installer, tmp_path: Path) -> None:
    site = Site(install.base, (install.changed(int8(), tmp_path / "copy"),))
    assert "int8" in site.by_name()
    metadata = tmp_path / "copy" / "acme_int8-1.0.dist-info"
    (metadata / "METADATA").unlink()
    report = site.plugins()
    assert report["damaged"] == [{"metadata": str(metadata), "reason": "no METADATA; it declares int8"}]
    assert "int8" not in [each["name"] for each in report["plugins"]]


def test_b3_06_damage_of_another_groups_entry_points_is_nothing_to_us(install: Installer, tmp_path: Path) -> None:
    metadata_folder(tmp_path / "other", "other", "1.0", "[console_scripts]\nnonsense\n")
    report = install(int8()).and_folder(tmp_path / "other").plugins()
    assert (report["damaged"], len(report["plugins"])) == ([], 5)


def test_b3_06_damage_is_seen_by_an_inspection_too(install: Installer, tmp_path: Path) -> None:
    metadata_folder(tmp_path / "damaged", "ghost", "1.0", DAMAGES["undecodable"][0])
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    done = install().and_folder(tmp_path / "damaged").tensorhub("inspect", tmp_path / "tree")
    assert done.code == 0, done.err


def test_b3_06_a_folder_whose_name_is_no_utf8_is_listed(install: Installer, tmp_path: Path) -> None:
    folder = Path(str(tmp_path / "odd-\udcff"))
    shutil.copytree(install.installed(int8()), folder)
    site = install().and_folder(folder)
    for command in ("plugins", "lanes"):
        done = site.tensorhub(command, "--output", "json")
        assert done.code == 0, done.err[-2000:]
        json.loads(done.out)


# B3-07: packages without their metadata.


@pytest.fixture(scope="module")
def without_metadata(base: Environment, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """An environment as images that copy packages alone have it."""
    environment = base.copy(tmp_path_factory.mktemp("copied") / "environment")
    for metadata in environment.site_packages.glob("*.dist-info"):
        shutil.rmtree(metadata)
    return Site(environment)


def test_b3_07_lanes_without_metadata_are_a_fault_with_the_number_of_distributions(without_metadata: Site, tmp_path: Path) -> None:
    for arguments in ([], ["--output", "json"], ["--strict"]):
        done = without_metadata.tensorhub("lanes", *arguments)
        assert (done.code, done.out) == (3, "")
        assert "no plugin found among 0 distributions" in done.err
        assert "*.dist-info" in done.err
    for number in range(3):
        metadata_folder(tmp_path / "others", f"other-{number}")
    done = without_metadata.and_folder(tmp_path / "others").tensorhub("lanes")
    assert done.code == 3
    assert "no plugin found among 3 distributions" in done.err


def test_b3_07_plugins_without_metadata_are_a_fault(without_metadata: Site) -> None:
    done = without_metadata.tensorhub("plugins", "--output", "json")
    assert done.code == 3
    report = json.loads(done.out)
    assert (report["distributions"], report["plugins"]) == (0, [])
    assert "0 plugins in 0 distributions: not even the shipped ones" in without_metadata.tensorhub("plugins").out


def test_b3_07_an_inspection_works_without_metadata(without_metadata: Site, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    done = without_metadata.tensorhub("inspect", tmp_path / "tree", "--output", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["inspections"][0]["contract"]["handle"] == "plain.bf16@1"


def test_b3_07_an_expected_plugin_that_is_missing_is_a_usage_error(without_metadata: Site, install: Installer) -> None:
    for site, selection, there in (
        (without_metadata, "int8", "there are none"),
        (without_metadata, "plain", "there are none"),
        (install(), "int8", "there are cozy-fp8-rowwise, cozy-fp8-storage, hf-fp8-blockwise, plain"),
        (install(int8()), "int8,int4", "int8, plain"),
    ):
        for command in ("lanes", "plugins"):
            done = site.tensorhub(command, selection=selection)
            assert (done.code, done.out) == (2, ""), done.err
            assert "names no installed plugin" in done.err
            assert there in done.err
    assert install(int8()).tensorhub("lanes", selection="int8").code == 0


def test_b3_07_only_our_metadata_is_missing(base: Environment, install: Installer, tmp_path: Path) -> None:
    environment = base.copy(tmp_path / "environment")
    (ours,) = environment.site_packages.glob("tensorhub_contracts-*.dist-info")
    shutil.rmtree(ours)
    done = Site(environment).tensorhub("lanes")
    assert done.code == 3
    assert "no plugin found among 8 distributions" in done.err


# B3-08: one scan.

_COUNTING = """
import json, sys, time
opened = []
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("entry_points.txt"):
        opened.append(str(arguments[0]))
sys.addaudithook(hook)
import tensorhub_contracts
from tensorhub_contracts import derive_execution_lanes, installed_plugins, installed_registry, inspect
after_import = len(opened)
started = time.perf_counter()
plugins = installed_plugins()
scan = time.perf_counter() - started
first = list(opened)
for _ in range(100):
    assert installed_plugins() is plugins
    derive_execution_lanes()
later = time.perf_counter() - started - scan
second = list(opened)
installed_plugins.cache_clear()
installed_plugins()
print(json.dumps([after_import, first, second, list(opened), plugins.distributions, scan, later]))
"""


def test_b3_08_five_hundred_distributions_are_scanned_once(install: Installer, tmp_path: Path) -> None:
    for number in range(500):
        metadata_folder(tmp_path / "many", f"many-{number:03}", "1.0", f"[console_scripts]\nmany-{number} = many:main\n")
    site = install(int8()).and_folder(tmp_path / "many")
    done = site.python(_COUNTING)
    assert done.code == 0, done.err
    after_import, first, second, cleared, distributions, scan, later = json.loads(done.out)
    assert after_import == 0
    assert sorted(each for each in first if "/many/" in each) == [
        str(tmp_path / "many" / f"many_{number:03}-1.0.dist-info" / "entry_points.txt") for number in range(500)
    ]
    assert second == first
    assert len(cleared) == 2 * len(first)
    assert distributions == 510
    assert site.lanes()["scan"]["distributions"] == 510
    print(f"510 distributions: {scan * 1000:.0f} ms for the scan and 5 plugins, {later * 10:.2f} ms for each of 100 later derivations")


def test_b3_08_the_scan_of_five_hundred_is_done_by_no_inspection_that_needs_none(install: Installer, tmp_path: Path) -> None:
    for number in range(500):
        metadata_folder(tmp_path / "many", f"many-{number:03}", "1.0", "[console_scripts]\nmany = many:main\n")
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    script = "import sys\nfrom tensorhub_contracts import inspect\ninspect(sys.argv[1]).require()\nprint(*sorted(sys.modules))\n"
    started = time.perf_counter()
    done = install().and_folder(tmp_path / "many").python(script, tmp_path / "tree")
    print(f"an inspection among 508 distributions: {(time.perf_counter() - started) * 1000:.0f} ms, the interpreter included")
    assert done.code == 0, done.err
    assert not {"importlib.metadata", "pluggy", "tensorhub_contracts.plugins.host"} & set(done.out.split())


# B3-18: distributions of other finders.

_FINDER = """
import importlib.metadata, sys
class Distribution(importlib.metadata.Distribution):
    def read_text(self, name):
        return {texts}.get(name)
    def locate_file(self, path):
        return path
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None
    @staticmethod
    def find_distributions(context=None):
        {body}
sys.meta_path.append(Finder)
"""


def with_finder(install: Installer, folder: Path, texts: dict[str, str], body: str = "yield Distribution()") -> Site:
    """A site whose interpreter has one more finder; its distribution declares the module of an installed plugin."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_FINDER.format(texts=repr(texts), body=body))
    (folder / "acme_found.py").write_text(owning(contracts()))
    return install().and_folder(folder)


FOUND = "[tensorhub.decoders]\nfound = acme_found\n"


@pytest.mark.parametrize(
    "metadata",
    [{}, {"METADATA": ""}, {"METADATA": "Metadata-Version: 2.1\n"}, {"METADATA": "Version: 3\n"}],
    ids=["none", "empty", "no-name", "version"],
)
def test_b3_18_a_distribution_without_a_name_is_unknown_and_survived(install: Installer, tmp_path: Path, metadata: dict[str, str]) -> None:
    site = with_finder(install, tmp_path / "finder", {"entry_points.txt": FOUND, **metadata})
    found = site.by_name()["found"]
    assert (found["distribution"], found["state"]) == ("unknown distribution", "loaded")
    assert found["version"] == ("3" if "Version: 3" in metadata.get("METADATA", "") else "")
    assert [each["distribution"] for each in site.lanes()["contracts"]] == ["unknown distribution"]
    assert INT8 in site.tensorhub("contracts").out


def test_b3_18_a_distribution_of_another_finder_that_has_a_name(install: Installer, tmp_path: Path) -> None:
    site = with_finder(install, tmp_path / "finder", {"entry_points.txt": FOUND, "METADATA": "Name: frozen\nVersion: 3\n"})
    found = site.by_name()["found"]
    assert (found["distribution"], found["version"], found["state"], found["notes"]) == ("frozen", "3", "loaded", [])


def test_b3_18_a_finder_that_fails_is_survived(install: Installer, tmp_path: Path) -> None:
    site = with_finder(install, tmp_path / "finder", {}, body="raise RuntimeError('no distributions')")
    done = site.tensorhub("plugins", "--output", "json")
    assert done.code == 0, done.err[-1500:]
    report = json.loads(done.out)
    assert len(names(report["plugins"], "loaded")) == 4
    assert report["damaged"] == [{"metadata": "finder Finder", "reason": "RuntimeError: no distributions"}]
    assert report["distributions"] == install().plugins()["distributions"], "what another finder knows is counted once"


def test_b3_18_a_finder_that_fails_before_all_others_hides_none_of_them(install: Installer, tmp_path: Path) -> None:
    site = with_finder(install, tmp_path / "finder", {}, body="raise RuntimeError('no distributions')")
    place = site.path[0] / "sitecustomize.py"
    place.write_text(place.read_text().replace("append(Finder)", "insert(0, Finder)"))
    assert len(names(site.plugins()["plugins"], "loaded")) == 4


def test_b3_18_a_distribution_without_a_folder_is_undamaged_if_it_declares_nothing(install: Installer, tmp_path: Path) -> None:
    report = with_finder(install, tmp_path / "finder", {}).plugins()
    assert (report["damaged"], report["distributions"]) == ([], install().plugins()["distributions"] + 1)


def test_b3_18_a_distribution_that_gives_out_no_metadata_is_unknown_and_survived(install: Installer, tmp_path: Path) -> None:
    body = "yield type('Bare', (Distribution,), {'metadata': None})()"
    found = with_finder(install, tmp_path / "finder", {"entry_points.txt": FOUND}, body).by_name()["found"]
    assert (found["distribution"], found["version"], found["state"]) == ("unknown distribution", "", "loaded")


def test_an_egg_folder_on_the_path_is_seen_by_an_inspection_as_by_the_listing(install: Installer, tmp_path: Path) -> None:
    egg = tmp_path / "acme.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: acme-int8\nVersion: 1.0\n")
    (egg / "EGG-INFO" / "entry_points.txt").write_text("[tensorhub.decoders]\nint8 = acme_int8\n")
    (egg / "acme_int8.py").write_text(owning(contracts()))
    site = install().and_folder(egg)
    assert site.by_name()["int8"]["state"] == "loaded"
    assert INT8 in site.tensorhub("contracts").out

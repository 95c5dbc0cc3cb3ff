"""A plugin in real environments: installed and uninstalled, in child processes, on other Pythons, with a contract of its own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.checkpoint_files import Tensors, write_checkpoint
from tests.support.environments import Environment, Installer, Site, install_ourselves, new_environment
from tests.support.plugin_sources import INT8, UNREAD, decoding, int8, plugin

INT8_TREE: Tensors = {"proj.weight": ("I8", (4, 6)), "proj.weight_scale": ("F32", (4,)), "norm.weight": ("BF16", (6,))}


def test_a_plugin_is_there_as_long_as_it_is_installed(base: Environment, install: Installer, tmp_path: Path) -> None:
    environment = base.copy(tmp_path / "environment")
    site = Site(environment)
    before = (site.plugins(), site.lanes(code=1), site.tensorhub("contracts", "--output", "json").out)
    write_checkpoint(tmp_path / "tree", INT8_TREE)
    environment.pip("install", "--no-deps", "--no-index", install.wheel(int8()))
    assert site.by_name()["int8"]["metadata"] == str(environment.site_packages / "acme_int8-1.0.dist-info")
    assert site.lanes()["lanes_beyond_table"] == ["int8-w8a16+eager", "int8-w8a16+compiled"]
    row = json.loads(site.tensorhub("contracts", "--output", "json").out)[-1]
    assert (row["handle"], row["summary"]) == (INT8, "INT8, one scale a row.")
    assert row["digest"] == site.lanes()["contracts"][0]["digest"]
    assert site.tensorhub("inspect", tmp_path / "tree").code == 0
    environment.pip("install", "--no-deps", "--no-index", "--upgrade", install.wheel(int8("2.0")))
    upgraded = site.by_name()["int8"]
    assert (upgraded["version"], upgraded["state"], upgraded["notes"]) == ("2.0", "loaded", [])
    environment.pip("uninstall", "-y", "acme-int8")
    assert (site.plugins(), site.lanes(code=1), site.tensorhub("contracts", "--output", "json").out) == before
    assert site.tensorhub("inspect", tmp_path / "tree").code == 1


def test_an_inspection_proves_the_contract_of_a_plugin(install: Installer, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", INT8_TREE)
    site = install(int8())
    done = site.tensorhub("inspect", tmp_path / "tree", "--output", "json")
    assert done.code == 0, done.out[-2000:] + done.err
    (inspection,) = json.loads(done.out)["inspections"]
    digest = site.lanes()["contracts"][0]["digest"]
    assert (inspection["contract"], inspection["violations"]) == ({"handle": INT8, "digest": digest}, [])
    assert site.tensorhub("inspect", tmp_path / "tree", "--contract", INT8).code == 0
    assert site.tensorhub("inspect", tmp_path / "tree", "--contract", "plain.bf16@1").code == 1
    shown = site.tensorhub("contracts", "show", INT8)
    assert shown.code == 0
    assert digest in shown.out


def test_an_inspection_refuses_what_breaks_the_contract_of_a_plugin(install: Installer, tmp_path: Path) -> None:
    for name, change in (("rank", {"proj.weight_scale": ("F32", (4, 1))}), ("count", {"proj.weight_scale": ("F32", (6,))})):
        write_checkpoint(tmp_path / name, {**INT8_TREE, **change})
        done = install(int8()).tensorhub("inspect", tmp_path / name, "--output", "json")
        assert done.code == 1
        violations = json.loads(done.out)["inspections"][0]["violations"]
        assert "proj.weight_scale" in json.dumps(violations)


def test_an_inspection_refuses_the_same_tree_when_the_plugin_is_gone_or_blocked(install: Installer, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", INT8_TREE)
    gone = install().tensorhub("inspect", tmp_path / "tree", "--output", "json")
    assert gone.code == 1
    assert json.loads(gone.out)["inspections"][0]["accepted"] is False
    blocked = install(int8()).tensorhub("inspect", tmp_path / "tree", "--output", "json", selection="-int8")
    assert (blocked.code, json.loads(blocked.out)["inspections"][0]["accepted"]) == (1, False)
    asked = install(int8()).tensorhub("inspect", tmp_path / "tree", "--contract", INT8, selection="-int8")
    assert asked.code == 2
    assert "int8 (acme-int8 1.0) is blocked: by TENSOR_CONTRACTS_PLUGINS" in asked.err


def test_a_plugin_decodes_a_contract_of_the_shipped_registry(install: Installer) -> None:
    listed = {
        line.split()[0]: line.split()[1] for line in install(plugin("acme", decoding(UNREAD))).tensorhub("contracts").out.splitlines()
    }
    assert listed[UNREAD] == "decoded"
    bare = {line.split()[0]: line.split()[1] for line in install().tensorhub("contracts").out.splitlines()}
    assert bare[UNREAD] == "proved"
    assert {**listed, UNREAD: "proved"} == bare


# B3-15: child processes.

_CHILDREN = """
import json, multiprocessing, sys
from tensorhub_contracts import derive_execution_lanes, installed_plugins, installed_registry

def facts(_):
    plugins = installed_plugins()
    states = [[each.name, each.state, each.metadata, each.file] for each in plugins.plugins]
    return [states, derive_execution_lanes().digest, sorted(installed_registry().contracts), sorted(installed_registry().decoded)]

if __name__ == "__main__":
    found = [facts(0)]
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            found += pool.map(facts, range(2))
    print(json.dumps(found))
"""


def test_b3_15_children_see_the_plugins_and_the_lanes_of_their_parent(install: Installer, tmp_path: Path) -> None:
    script = tmp_path / "children.py"
    script.write_text(_CHILDREN)
    site = install(int8(), plugin("failing", "1 / 0\n"))
    done = site.script(script)
    assert done.code == 0, done.err
    parent, *children = json.loads(done.out)
    assert len(children) == 6
    assert all(child == parent for child in children)
    assert ["int8", "loaded"] in [each[:2] for each in parent[0]]
    assert INT8 in parent[2]
    assert INT8 in parent[3]


# B3-18: every Python that is supported.


def interpreter(version: str) -> str:
    """Return an interpreter of a version, or skip."""
    roots = [Path(each) for each in (os.environ.get("PYENV_ROOT", ""), Path.home() / ".pyenv") if str(each)]
    found = [str(each) for root in roots for each in sorted(root.glob(f"versions/{version}*/bin/python"))]
    if not found and (on_path := shutil.which(f"python{version}")):
        found = [on_path]
    if not found:
        pytest.skip(f"no Python {version} here")
    return found[-1]


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_b3_18_other_pythons_derive_the_same_lanes(install: Installer, our_wheel: Path, tmp_path: Path, version: str) -> None:
    environment = new_environment(tmp_path / "environment", tmp_path / "elsewhere", interpreter(version))
    install_ourselves(environment, our_wheel)
    damaged = tmp_path / "damaged" / "ghost-1.0.dist-info"
    damaged.mkdir(parents=True)
    here = install(int8(), plugin("failing", "1 / 0\n")).and_folder(damaged.parent)
    there = Site(environment, here.path)
    assert there.python("import sys; print(*sys.version_info[:2], sep='.')").out == f"{version}\n"
    reports = [each.plugins() for each in (there, here)]
    states = [[(each["name"], each["state"], each["notes"]) for each in report["plugins"]] for report in reports]
    assert states[0] == states[1]
    assert reports[0]["damaged"] == reports[1]["damaged"] == [{"metadata": str(damaged), "reason": "no METADATA"}]
    assert there.lanes()["digest"] == here.lanes()["digest"]

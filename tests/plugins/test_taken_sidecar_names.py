"""A plugin's sidecar names leave the verdict on a tree that is judged without them as it was, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Installer, Project, Site
from tests.support.plugin_sources import contracts, owning, plugin
from tests.support.trees import Tree, bf16, fp8_config, stacked_unit

HANDLE = "acme.fp8-named@1"
EXPERTS = {**stacked_unit("experts.gate_up_proj", 2, 128, 128), **bf16("norm.weight", 8)}
SCALED = {"gate_up_proj": ("F8_E4M3", (64, 64)), "gate_up_proj_scale": ("F32", (64,)), **bf16("norm.weight", 8)}


def naming(leaf: str, weight: str, *, needs_quantized: bool = False) -> Project:
    """Return a plugin whose weights are named `weight` and whose scales are named `leaf`."""
    toml = contracts(HANDLE, element="F8_E4M3", floors='"fp8-w8a16" = "none"')
    toml = toml.replace("{module}.weight_scale", "{module}" + leaf).replace("{module}.weight", "{module}" + weight)
    toml += f'\n[[sidecar]]\nsuffix = "{leaf}"\nrole = "weight-scale"\nbeside = ["{weight}"]\nused_by = "{HANDLE}"\n'
    toml += "needs_quantized = true\n" if needs_quantized else ""
    toml += f'\n[[payload]]\nsuffix = "{weight}"\nused_by = "{HANDLE}"\n'
    return plugin("acme_named", owning(toml, HANDLE, ("fp8-w8a16",)))


def verdict(site: Site, tree: Path) -> dict[str, Any]:
    """Return what `tensorhub inspect` says of a tree, without what names the plugin's own contract."""
    (found,) = json.loads(site.tensorhub("inspect", tree, "--output", "json").out)["inspections"]
    return {key: found[key] for key in ("contract", "units", "violations", "notes")}


PLUGINS = [
    pytest.param(naming("up_proj_scale_inv", "up_proj_qq"), id="blockwise"),
    pytest.param(naming("up_proj_scale", "up_proj_qq", needs_quantized=True), id="needs-quantized"),
]
TREES = [
    pytest.param(EXPERTS, fp8_config(), 0, id="accepted"),
    pytest.param({**EXPERTS, **SCALED}, fp8_config(), 1, id="refused-blockwise"),
    pytest.param(SCALED, {}, 1, id="refused-storage"),
]


@pytest.mark.parametrize("named", PLUGINS)
@pytest.mark.parametrize(("tree", "config", "code"), TREES)
def test_the_verdict_on_a_shipped_layout_stays(
    named: Project, tree: Tree, config: dict[str, Any], code: int, install: Installer, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "tree", tree, config=config)
    site = install(named)
    assert site.by_name()["acme_named"]["state"] == "loaded"
    assert site.tensorhub("inspect", tmp_path / "tree").code == code
    assert verdict(site, tmp_path / "tree") == verdict(install(), tmp_path / "tree")


@pytest.mark.parametrize("named", PLUGINS)
def test_the_plugins_own_layout_is_judged_by_its_names(named: Project, install: Installer, tmp_path: Path) -> None:
    leaf = "_scale_inv" if "_scale_inv" in str(named.files) else "_scale"
    own: Tree = {"a.gate_up_proj_qq": ("F8_E4M3", (64, 32)), f"a.gate_up_proj{leaf}": ("F32", (64,)), **bf16("norm.weight", 8)}
    site = install(named)
    write_checkpoint(tmp_path / "own", own)
    found = verdict(site, tmp_path / "own")
    assert (found["contract"] or {}).get("handle") == HANDLE, found
    write_checkpoint(tmp_path / "orphan", {**own, f"b.gate_up_proj{leaf}": ("F32", (64,))})
    codes = [each["code"] for each in verdict(site, tmp_path / "orphan")["violations"]]
    assert codes == (["scale-orphan"] if leaf == "_scale_inv" else [])
    write_checkpoint(tmp_path / "wrong", {**own, f"a.gate_up_proj{leaf}": ("F32", (32,))})
    assert verdict(site, tmp_path / "wrong")["violations"]

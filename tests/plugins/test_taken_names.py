"""What is named once and described twice: a reference dequant of two plugins, a shipped name of two copies of our metadata."""

from __future__ import annotations

from pathlib import Path

from tests.support.environments import Installer, Project, metadata_folder, names
from tests.support.plugin_sources import BLOCKWISE, contracts, decoding, owning, plugin


def with_dequant(module: str, handle: str, scale: str, rounding: str) -> Project:
    """Return a plugin with a contract of its own, and a dequant of the producer that it shares with others."""
    dequant = f'\n[[reference_dequant]]\nname = "acme.dequant@1"\nformula = "weight * scale"\nrounding = "{rounding}"\n'
    toml = contracts(handle, scale=scale).replace('reference_dequant = "none"', 'reference_dequant = "acme.dequant@1"')
    return plugin(module, owning(toml + dequant, handle))


def test_two_plugins_that_describe_one_dequant_differently_are_both_in_conflict(install: Installer) -> None:
    one = with_dequant("one", "acme.one@1", '["out"]', "once.")
    for rounding, states in (("once.", ("loaded", "loaded")), ("twice.", ("conflict", "conflict"))):
        site = install(one, with_dequant("two", "acme.two@1", '["out", 1]', rounding))
        for each in (site, site.ordered(1, 0)):
            named = each.by_name()
            assert (named["one"]["state"], named["two"]["state"]) == states
    reasons = [named[name]["reason"] for name in ("one", "two")]
    assert reasons == [f"reference dequant acme.dequant@1 is described differently by {other}" for other in ("two", "one")]


def test_a_shipped_name_with_two_values_is_that_of_the_distribution_whose_files_run(install: Installer, tmp_path: Path) -> None:
    """Two releases of this distribution on one path: ours is the one that has the imported package among its files."""
    metadata_folder(tmp_path / "other", "tensorhub-contracts", "0.0.1", "[tensorhub.decoders]\nplain = tensorhub_decoders.dense\n")
    report = install().and_folder(tmp_path / "other").plugins()
    assert names(report["plugins"], "conflict") == ["plain"]
    assert names(report["plugins"], "loaded") == ["cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "plain"]
    (refused,) = (found for found in report["plugins"] if found["state"] == "conflict")
    assert (refused["version"], refused["shipped"]) == ("0.0.1", False)
    assert refused["reason"].startswith("its name is taken by tensorhub_decoders.plain of tensorhub-contracts")


def test_a_winner_is_named_in_any_spelling_of_the_plugins_own_name(install: Installer) -> None:
    site = install(plugin("quick", decoding(BLOCKWISE), entry="Acme_Int8", distribution="other"), torch=True)
    for spelling in ("acme-int8", "Acme_Int8", "ACME.INT8"):
        (conflict,) = site.plugins(selection=f"{BLOCKWISE}={spelling}")["lane_conflicts"]
        assert conflict["winner"] == "Acme_Int8"


def test_a_plugin_that_describes_a_shipped_sidecar_differently_is_broken_and_no_other(install: Installer) -> None:
    table = '\n[[sidecar]]\nsuffix = ".weight_scale"\nrole = "weight-scale"\nbeside = [".weight"]\nused_by = "us"\n'
    broken = plugin("another", owning(contracts("acme.another@1", scale='["out", 1]') + table, "acme.another@1"))
    report = install(broken, plugin("zulu", decoding("compressed-tensors.fp8-block@1")), plugin("bravo", owning(contracts()))).plugins()
    states = {each["name"]: each["state"] for each in report["plugins"]}
    assert states == {
        **dict.fromkeys(("cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "plain", "bravo", "zulu"), "loaded"),
        "another": "broken",
    }
    assert len(report["plugins"]) == len(states)
    (found,) = (each for each in report["plugins"] if each["name"] == "another")
    assert found["reason"].endswith("sidecar .weight_scale: described differently elsewhere")
    assert (found["owns"], found["decodes"]) == ([], [])

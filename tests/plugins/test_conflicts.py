"""What two plugins cannot both have: a name, a contract, a lane of a contract. Both are named, whoever comes first on the path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import hatchling
import pytest

from tests.support.environments import Environment, Installer, Project, Site, build_wheel, excluded, metadata_folder, names, project
from tests.support.plugin_sources import BLOCKWISE, HEAD, HOOK, INT8, UNREAD, contracts, declared, decoding, int8, owning, plugin

GOOD = plugin("good_fp8", decoding(UNREAD), entry="fp8", distribution="good", version="1.2")
EVIL = plugin("evil_fp8", decoding(UNREAD, ("fp8-w8a32",)), entry="fp8", distribution="evil", version="6.6")


def same(answers: Sequence[str]) -> bool:
    return len(set(answers)) == 1


def test_b3_03_one_name_in_two_distributions_puts_both_in_conflict_in_either_order(install: Installer) -> None:
    site = install(GOOD, EVIL)
    reports = [each.plugins() for each in (site, site.ordered(1, 0))]
    assert same([json.dumps(report) for report in reports])
    evil, good = (each for each in reports[0]["plugins"] if each["name"] == "fp8")
    assert (evil["distribution"], evil["state"], good["distribution"], good["state"]) == ("evil", "conflict", "good", "conflict")
    assert evil["reason"] == f"its name is taken by good_fp8 of good 1.2 ({site.path[0] / 'good-1.2.dist-info'})"
    assert good["reason"] == f"its name is taken by evil_fp8 of evil 6.6 ({site.path[1] / 'evil-6.6.dist-info'})"
    assert evil["decodes"] == good["decodes"] == []
    assert len(names(reports[0]["plugins"], "loaded")) == 4


def test_b3_03_neither_of_two_plugins_with_one_name_is_imported(install: Installer, tmp_path: Path) -> None:
    marked = [
        plugin(f"marking_{each}", f"import pathlib\npathlib.Path({str(tmp_path / each)!r}).touch()\n{decoding(UNREAD)}", entry="marking")
        for each in ("one", "two")
    ]
    install(*marked).plugins()
    assert list(tmp_path.iterdir()) == []
    install(marked[0]).plugins()
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_b3_03_spellings_of_one_name_are_one_name(install: Installer) -> None:
    other = plugin("evil_fp8", decoding(UNREAD), entry="FP8", distribution="evil")
    assert names(install(GOOD, other).plugins()["plugins"], "conflict") == ["FP8", "fp8"]


def test_b3_03_lanes_are_refused_with_both_named_until_one_is_blocked_by_its_distribution(install: Installer) -> None:
    site = install(GOOD, EVIL)
    refusals = [each.tensorhub("lanes", "--output", "json") for each in (site, site.ordered(1, 0))]
    assert [each.code for each in refusals] == [1, 1]
    assert same([each.err for each in refusals])
    assert refusals[0].out == ""
    for said in ("plugin-conflict", "fp8 (good 1.2)", "fp8 (evil 6.6)", "TENSOR_CONTRACTS_PLUGINS"):
        assert said in refusals[0].err
    record = site.lanes(selection="-evil")
    assert [(each["contract"], each["distribution"], each["version"]) for each in record["contracts"]] == [(UNREAD, "good", "1.2")]
    assert [each["module"] for each in excluded(record, "plugin-blocked")] == ["evil_fp8"]
    assert record["lanes"] == ["fp8-w8a16+eager", "fp8-w8a16+compiled"]
    assert site.lanes(selection="-good")["lanes_beyond_table"] == ["fp8-w8a32+eager", "fp8-w8a32+compiled"]
    assert site.tensorhub("lanes", "--strict", selection="-evil").code == 0


def test_b3_03_a_conflict_is_a_fault_for_strict(install: Installer) -> None:
    site = install(GOOD, EVIL)
    assert site.tensorhub("plugins").code == 0
    assert site.tensorhub("plugins", "--strict").code == 3
    assert site.tensorhub("plugins", "--strict", selection="-evil").code == 0


@pytest.mark.parametrize("taken", ["plain", "Hf_Fp8.Blockwise"])
def test_b3_03_a_shipped_name_cannot_be_taken(install: Installer, taken: str) -> None:
    site = install(plugin("taker", decoding(UNREAD), entry=taken))
    report = site.plugins()
    (theirs,) = (each for each in report["plugins"] if each["distribution"] == "taker")
    assert (theirs["name"], theirs["state"], theirs["decodes"]) == (taken, "conflict", [])
    assert "of tensorhub-contracts" in theirs["reason"]
    assert names(report["plugins"], "loaded") == ["cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "plain"]
    refused = site.tensorhub("lanes")
    assert refused.code == 1
    assert f"{taken} (taker 1.0)" in refused.err
    torch = install(plugin("taker", decoding(UNREAD), entry=taken), torch=True)
    assert torch.tensorhub("lanes").code == 1
    record = torch.lanes(selection="-taker")
    assert {each["distribution"] for each in record["contracts"]} == {"tensorhub-contracts"}
    assert [each["module"] for each in excluded(record, "plugin-blocked")] == ["taker"]


def claiming(module: str, contract: str = UNREAD, serves: tuple[str, ...] = ("fp8-w8a16",)) -> Project:
    return plugin(module, decoding(contract, serves))


def test_b3_03_two_plugins_that_claim_one_lane_are_refused_with_both_named(install: Installer) -> None:
    site = install(claiming("acme"), claiming("bravo"))
    sites = (site, site.ordered(1, 0))
    report = site.plugins()
    assert names(report["plugins"], "conflict") == []
    assert report["lane_conflicts"] == [
        {"contract": UNREAD, "body": "fp8-w8a16", "plugins": ["acme", "bravo"], "decoders": ["acme:decode", "bravo:decode"], "winner": ""}
    ]
    refusals = [each.tensorhub("lanes") for each in sites]
    assert [each.code for each in refusals] == [1, 1]
    assert same([each.err for each in refusals])
    assert f"plugin-conflict: {UNREAD} in fp8-w8a16" in refusals[0].err
    assert "acme:decode of acme (acme 1.0) and bravo:decode of bravo (bravo 1.0)" in refusals[0].err
    assert f"{UNREAD}=NAME" in refusals[0].err
    assert [each.tensorhub("plugins", "--strict").code for each in sites] == [3, 3]
    assert "nobody wins until TENSOR_CONTRACTS_PLUGINS names one" in site.tensorhub("plugins").out


def test_b3_03_every_contest_is_listed_and_not_the_first(install: Installer) -> None:
    both = (claiming("acme", serves=("fp8-w8a16", "fp8-w8a32")), claiming("bravo", serves=("fp8-w8a16", "fp8-w8a32")))
    done = install(*both, claiming("carol", BLOCKWISE)).tensorhub("lanes")
    assert done.code == 1
    assert done.err.count("plugin-conflict: ") == 3


def test_b3_03_different_lanes_of_one_contract_are_no_contest(install: Installer) -> None:
    site = install(claiming("acme", serves=("fp8-w8a16",)), claiming("bravo", serves=("fp8-w8a32",)))
    assert site.plugins()["lane_conflicts"] == []
    assert [each["decoder"] for each in site.lanes()["contracts"]] == ["acme:decode", "bravo:decode"]


@pytest.mark.parametrize("winner", ["ACME", "Acme.Fast"])
def test_b3_03_the_image_names_the_winner_and_the_loser_is_left_out(install: Installer, winner: str) -> None:
    acme = plugin("acme", decoding(BLOCKWISE, lora=False), distribution="acme-fast")
    site = install(acme, torch=True)
    assert site.tensorhub("lanes").code == 1
    selection = f"{BLOCKWISE}={winner}"
    (conflict,) = site.plugins(selection=selection)["lane_conflicts"]
    assert (conflict["plugins"], conflict["winner"]) == (["acme", "hf-fp8-blockwise"], "acme")
    record = site.lanes(selection=selection)
    (lost,) = excluded(record, "lane-overridden")
    assert lost["module"] == "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise"
    assert (lost["contract"], lost["lanes"]) == (BLOCKWISE, ["fp8-w8a16+eager", "fp8-w8a16+compiled"])
    served = {each["decoder"]: each["lanes"] + each["lanes_beyond_table"] for each in record["contracts"] if each["contract"] == BLOCKWISE}
    assert served == {
        "acme:decode": ["fp8-w8a16+eager", "fp8-w8a16+compiled"],
        "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise": ["fp8-w8a32+eager", "fp8-w8a32+compiled"],
    }
    assert site.tensorhub("plugins", "--strict", selection=selection).code == 0


def test_b3_03_the_shipped_decoder_can_be_named_as_the_winner(install: Installer) -> None:
    site = install(plugin("acme", decoding(BLOCKWISE)), torch=True)
    for winner in ("hf-fp8-blockwise", "tensorhub-contracts"):
        record = site.lanes(selection=f"{BLOCKWISE}={winner}")
        assert [each["module"] for each in excluded(record, "lane-overridden")] == ["acme:decode"]
        assert "acme:decode" not in {each["decoder"] for each in record["contracts"]}


def test_b3_03_a_winner_that_does_not_decode_the_contract_is_a_usage_error(install: Installer) -> None:
    site = install(claiming("acme"), plugin("failing", "1 / 0\n"))
    for winner, said in (
        ("plain", "plain does not decode it"),
        ("failing", "failing (failing 1.0) is broken"),
        ("nobody", "no installed plugin"),
    ):
        done = site.tensorhub("lanes", selection=f"{BLOCKWISE}={winner}")
        assert done.code == 2, done.err
        assert said in done.err


def test_b3_03_two_decoders_of_one_plugin_that_claim_one_lane_are_refused(install: Installer) -> None:
    text = HEAD + declared(UNREAD) + declared(UNREAD, name="decode_too") + HOOK.format(name="decode, decode_too")
    site = install(plugin("double", text))
    assert site.tensorhub("lanes").code == 1
    assert site.tensorhub("lanes", selection=f"{UNREAD}=double").code == 1


def test_two_entry_points_of_one_module_are_one_decoder(install: Installer) -> None:
    text = owning(contracts())
    site = install(project("twice", {"once": "twice", "again": "twice"}, {"twice.py": text}))
    assert names(site.plugins()["plugins"], "loaded")[0] == "again"
    record = site.lanes()
    assert [(each["contract"], each["decoder"]) for each in record["contracts"]] == [(INT8, "twice:decode")]


# B3-04, B3-05: one distribution, seen twice.


def with_copied_metadata(install: Installer, folder: Path, form: str, value: str = "acme_int8", version: str = "1.0") -> Site:
    """A wheel in one folder, and its metadata once more in another one, which comes first."""
    entry_points = f"[tensorhub.decoders]\nint8 = {value}\n"
    if form == "dist-info":
        metadata_folder(folder, "acme-int8", version, entry_points)
    else:
        egg = folder / "acme_int8.egg-info"
        egg.mkdir(parents=True)
        (egg / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: acme-int8\nVersion: {version}\n")
        (egg / "entry_points.txt").write_text(entry_points)
    return install(int8()).and_folder(folder)


@pytest.mark.parametrize("form", ["dist-info", "egg-info"])
@pytest.mark.parametrize("first", [True, False], ids=["copy-first", "wheel-first"])
def test_b3_04_one_distribution_seen_twice_is_one_plugin_with_a_note(install: Installer, tmp_path: Path, form: str, first: bool) -> None:
    site = with_copied_metadata(install, tmp_path / "copy", form)
    site = site if first else site.ordered(1, 0)
    found = site.by_name()["int8"]
    wheel = next(each for each in site.path if each != tmp_path / "copy")
    assert found["state"] == "loaded"
    assert found["metadata"] == str(wheel / "acme_int8-1.0.dist-info")
    (note,) = found["notes"]
    assert note.startswith(f"declared by {tmp_path / 'copy'}")
    assert note.endswith(f".{form} too")
    assert site.lanes() == {**install(int8()).lanes(), "scan": {"distributions": 11, "damaged": 0, "plugins": 5}}
    quiet = site.tensorhub("plugins", "--strict")
    assert (quiet.code, quiet.err) == (0, "")


def test_b3_04_another_version_of_the_same_declaration_is_noted(install: Installer, tmp_path: Path) -> None:
    found = with_copied_metadata(install, tmp_path / "copy", "egg-info", version="0.9").by_name()["int8"]
    assert (found["state"], found["version"]) == ("loaded", "1.0")
    assert found["notes"] == [f"declared by {tmp_path / 'copy' / 'acme_int8.egg-info'} too, as version 0.9"]


@pytest.mark.parametrize("form", ["dist-info", "egg-info"])
def test_b3_04_another_value_of_one_entry_point_is_a_conflict(install: Installer, tmp_path: Path, form: str) -> None:
    site = with_copied_metadata(install, tmp_path / "copy", form, value="acme_int8:OTHER")
    reports = [each.plugins() for each in (site, site.ordered(1, 0))]
    assert same([json.dumps(report) for report in reports])
    assert names(reports[0]["plugins"], "conflict") == ["int8", "int8"]
    assert site.tensorhub("lanes").code == 1


def test_b3_05_an_editable_install_run_from_its_source_folder_is_one_plugin(base: Environment, tmp_path: Path) -> None:
    source = int8().write(tmp_path / "project")
    environment = base.copy(tmp_path / "environment")
    build_tools = str(Path(hatchling.__path__[0]).parent)
    environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", "-e", source, env={"PYTHONPATH": build_tools})
    site = Site(environment)
    for cwd in (environment.elsewhere, source / "src"):
        done = site.tensorhub_here("plugins", "--strict", "--output", "json", cwd=cwd)
        assert (done.code, done.err) == (0, "")
        (found,) = (each for each in json.loads(done.out)["plugins"] if each["name"] == "int8")
        assert (found["state"], found["notes"]) == ("loaded", [])
        assert found["file"] == str(source / "src" / "acme_int8.py")
        assert found["metadata"] == str(environment.site_packages / "acme_int8-1.0.dist-info")
    metadata = source / "src" / "acme_int8.egg-info"
    metadata.mkdir()
    (metadata / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: acme-int8\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tensorhub.decoders]\nint8 = acme_int8\n")
    done = site.tensorhub_here("plugins", "--strict", "--output", "json", cwd=source / "src")
    (found,) = (each for each in json.loads(done.out)["plugins"] if each["name"] == "int8")
    assert (done.code, found["state"]) == (0, "loaded")
    assert found["metadata"] == str(environment.site_packages / "acme_int8-1.0.dist-info")
    assert len(found["notes"]) == 1
    assert "egg-info too" in found["notes"][0]


# B3-16: who owns a contract.


def shipped_handle_owner() -> str:
    return owning(contracts(BLOCKWISE, element="F8_E4M3", floors='"fp8-w8a16" = "none"'), BLOCKWISE, ("fp8-w8a16",))


def test_b3_16_a_shipped_contract_cannot_be_owned(install: Installer) -> None:
    site = install(plugin("taker", shipped_handle_owner()), torch=True)
    named = site.by_name()
    assert named["taker"]["state"] == "broken"
    assert "a shipped contract, and no plugin may replace it" in named["taker"]["reason"]
    assert named["hf-fp8-blockwise"]["state"] == "loaded"
    record = site.lanes()
    assert {each["distribution"] for each in record["contracts"] if each["contract"] == BLOCKWISE} == {"tensorhub-contracts"}
    shown, shipped = (each.tensorhub("contracts", "show", BLOCKWISE).out for each in (site, install()))
    assert shown == shipped


def test_b3_16_the_next_major_of_a_shipped_contract_is_another_contract(install: Installer) -> None:
    handle = "hf.fp8-blockwise@2"
    toml = contracts(handle, element="F8_E4M3", floors='"fp8-w8a16" = 89', scale='["out"], ["out", "out"]')
    site = install(plugin("next", owning(toml, handle, ("fp8-w8a16",))))
    assert site.by_name()["next"]["owns"] == [handle]
    (entry,) = site.lanes()["contracts"]
    assert (entry["contract"], entry["floors"]) == (handle, {"fp8-w8a16": 89})
    assert site.tensorhub("contracts", "show", handle).code == 0
    assert site.tensorhub("contracts", "show", BLOCKWISE).code == 0


def test_b3_16_a_decoder_of_a_contract_that_nobody_owns_is_broken(install: Installer) -> None:
    text = owning(contracts()).replace("\n@hookimpl\ndef provide_contracts():\n    return CONTRACTS\n", "")
    site = install(plugin("homeless", text))
    found = site.by_name()["homeless"]
    assert found["state"] == "broken"
    assert found["reason"] == f"homeless:decode reads {INT8}, which no loaded plugin owns; return it from provide_contracts"
    assert site.by_name() != install(plugin("homeless", text), int8()).by_name()
    assert install(plugin("homeless", text), int8()).by_name()["homeless"]["state"] == "loaded"


def test_b3_16_a_decoder_of_another_digest_than_the_owner_states_is_broken(install: Installer) -> None:
    other = owning(contracts(scale='["out", 1]')).replace("\n@hookimpl\ndef provide_contracts():\n    return CONTRACTS\n", "")
    named = install(plugin("other", other), int8()).by_name()
    assert named["other"]["state"] == "broken"
    assert named["other"]["reason"].count("sha256:") == 2
    assert named["int8"]["state"] == "loaded"


def owners(install: Installer, summary: str, serves: str = "int8-w8a16") -> Site:
    second = HEAD + f"\n@hookimpl\ndef provide_contracts():\n    return read_contracts({contracts(summary=summary)!r})\n"
    return install(int8(), plugin("second", second))


def test_b3_16_two_owners_of_one_contract_who_agree_are_quiet(install: Installer) -> None:
    site = owners(install, "INT8, one scale a row.")
    for each in (site, site.ordered(1, 0)):
        named = each.by_name()
        assert [named[name]["owns"] for name in ("int8", "second")] == [[INT8], [INT8]]
        assert [entry["contract"] for entry in each.lanes()["contracts"]] == [INT8]
        assert each.tensorhub("plugins", "--strict").code == 0


def test_b3_16_two_owners_of_one_contract_who_disagree_are_both_in_conflict(install: Installer) -> None:
    site = owners(install, "Something else.")
    reports = [each.plugins() for each in (site, site.ordered(1, 0))]
    assert same([json.dumps(report) for report in reports])
    assert names(reports[0]["plugins"], "conflict") == ["int8", "second"]
    reasons = {each["name"]: each["reason"] for each in reports[0]["plugins"]}
    assert reasons["int8"] == f"contract {INT8} is described differently by second"
    assert reasons["second"] == f"contract {INT8} is described differently by int8"
    refused = [each.tensorhub("lanes") for each in (site, site.ordered(1, 0))]
    assert [each.code for each in refused] == [1, 1]
    assert same([each.err for each in refused])
    assert INT8 not in site.tensorhub("contracts").out
    assert site.by_name(selection="-second")["int8"]["state"] == "loaded"


def test_b3_16_two_handles_for_one_layout_are_a_conflict(install: Installer) -> None:
    copied = owning(contracts("bravo.int8@1"), "bravo.int8@1")
    report = install(int8(), plugin("bravo", copied)).plugins()
    assert names(report["plugins"], "conflict") == ["bravo", "int8"]
    assert all("digest sha256:" in each["reason"] for each in report["plugins"] if each["state"] == "conflict")


def test_b3_16_a_handle_of_another_producer_is_broken(install: Installer) -> None:
    text = owning(contracts().replace('producer = "acme"', 'producer = "bravo"'))
    found = install(plugin("bravo", text)).by_name()["bravo"]
    assert found["state"] == "broken"
    assert "the producer of this file is 'bravo'" in found["reason"]


# B3-17: whose file a module is.


def test_b3_17_a_module_of_another_distribution_is_noted(install: Installer) -> None:
    squatter = project("squatter", {}, {"acme_int8.py": owning(contracts())})
    site = install(squatter, int8())
    found = site.by_name()["int8"]
    assert (found["state"], found["file"]) == ("loaded", str(site.path[0] / "acme_int8.py"))
    assert found["notes"] == [f"its module was imported from {found['file']}, which is not a file of this distribution"]
    assert site.ordered(1, 0).by_name()["int8"]["notes"] == []
    assert f"note      {found['notes'][0]}" in site.tensorhub("plugins").out


def test_b3_17_of_two_versions_the_one_whose_module_was_imported_counts(install: Installer) -> None:
    newer = int8("2.0", owning(contracts(), why="Newer."))
    site = install(int8(), newer)
    for each, version, other in ((site, "1.0", "2.0"), (site.ordered(1, 0), "2.0", "1.0")):
        found = each.by_name()["int8"]
        assert (found["version"], found["file"]) == (version, str(each.path[0] / "acme_int8.py"))
        assert found["notes"] == [f"declared by {each.path[1] / f'acme_int8-{other}.dist-info'} too, as version {other}"]
        assert [entry["version"] for entry in each.lanes()["contracts"]] == [version]


def test_b3_17_a_package_and_its_submodules_belong_to_their_distribution(install: Installer) -> None:
    files = {"acme/__init__.py": "", "acme/deep/__init__.py": "", "acme/deep/plugin.py": decoding(UNREAD)}
    found = install(project("deep", {"deep": "acme.deep.plugin"}, files)).by_name()["deep"]
    assert (found["state"], found["notes"]) == ("loaded", [])


def test_b3_17_a_wheel_on_the_path_is_a_distribution(install: Installer, tmp_path: Path) -> None:
    wheel = Path(shutil.copy(build_wheel(int8().write(tmp_path / "project"), tmp_path / "wheel"), tmp_path))
    site = install().and_folder(wheel)
    found = site.by_name()["int8"]
    assert (found["state"], found["distribution"], found["version"]) == ("loaded", "acme-int8", "1.0")
    assert INT8 in site.tensorhub("contracts").out
    assert site.lanes()["digest"] == install(int8()).lanes()["digest"]

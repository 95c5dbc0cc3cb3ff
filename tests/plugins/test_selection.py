"""`TENSOR_CONTRACTS_PLUGINS`: what is blocked is never imported, under any spelling, and is shown all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Installer, Site, excluded, names, project
from tests.support.plugin_sources import BLOCKWISE, INT8, UNREAD, decoding, int8, plugin

SHIPPED = ["cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "plain"]


def marking(install: Installer) -> Site:
    """A plugin that leaves a mark where it is imported, and then imports torch; beside it, one that works."""
    text = f"import os, pathlib\npathlib.Path(os.environ['ACME_MARK']).touch()\nimport torch\n{decoding(UNREAD)}"
    slow = project("Acme_Slow.Plugin", {"My_Plugin": "acme_slow"}, {"acme_slow.py": text})
    return install(slow, int8(), torch=True)


def test_b3_09_the_plugin_of_these_tests_is_imported_when_nothing_blocks_it(install: Installer, tmp_path: Path) -> None:
    found = marking(install).by_name(env={"ACME_MARK": str(tmp_path / "mark")})["My_Plugin"]
    assert (found["state"], found["reason"].partition(",")[0]) == ("broken", "AssertionError: torch was imported")
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "selection",
    [
        "-My_Plugin",
        "-my.plugin",
        "-MY-PLUGIN",
        "-my__plugin",
        " , - my-plugin ,",
        "-acme-slow-plugin",
        "-Acme_Slow.Plugin",
        "-ACME.SLOW_PLUGIN",
        "int8",
        "Acme_INT8",
        "plain",
        "int8,-my-plugin",
    ],
)
def test_b3_10_what_is_blocked_is_never_imported_and_still_listed(install: Installer, tmp_path: Path, selection: str) -> None:
    site = marking(install)
    env = {"ACME_MARK": str(tmp_path / "mark")}
    found = site.by_name(selection=selection, env=env)["My_Plugin"]
    assert (found["state"], found["reason"], found["decodes"], found["file"]) == ("blocked", "by TENSOR_CONTRACTS_PLUGINS", [], "")
    assert found["distribution"] == "Acme_Slow.Plugin"
    record = site.lanes(selection=selection, env=env)
    assert "acme_slow" in [each["module"] for each in excluded(record, "plugin-blocked")]
    assert not (tmp_path / "mark").exists()


def test_b3_09_an_inspection_imports_nothing_that_is_blocked(install: Installer, tmp_path: Path) -> None:
    site = marking(install)
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    env = {"ACME_MARK": str(tmp_path / "mark")}
    for arguments in (("inspect", tmp_path / "tree"), ("contracts",), ("plugins", "--strict"), ("lanes", "--strict")):
        assert site.tensorhub(*arguments, selection="-my-plugin", env=env).code == 0
    assert not (tmp_path / "mark").exists()


def test_b3_09_an_allow_list_admits_those_named_and_the_shipped_ones(install: Installer) -> None:
    site = install(int8(), plugin("other", decoding(UNREAD)))
    for selection, loaded in (
        ("int8", [*SHIPPED[:3], "int8", "plain"]),
        ("acme-int8", [*SHIPPED[:3], "int8", "plain"]),
        ("other,INT8", [*SHIPPED[:3], "int8", "other", "plain"]),
        ("int8,-plain", [*SHIPPED[:3], "int8"]),
        ("-int8,other", [*SHIPPED[:3], "other", "plain"]),
        ("tensorhub-contracts", SHIPPED),
    ):
        assert names(site.plugins(selection=selection)["plugins"], "loaded") == loaded
    assert [each["contract"] for each in site.lanes(selection="int8")["contracts"]] == [INT8]


def test_b3_10_blocking_a_shipped_plugin_works_and_is_visible(install: Installer, tmp_path: Path) -> None:
    site = install(torch=True)
    report = site.plugins(selection="-plain")
    assert names(report["plugins"], "blocked") == ["plain"]
    assert names(site.plugins(selection="-tensorhub_contracts")["plugins"], "blocked") == SHIPPED
    record = site.lanes(selection="-plain")
    assert [each["module"] for each in excluded(record, "plugin-blocked")] == ["tensorhub_decoders.plain"]
    assert "bf16-w16a16+eager" not in record["lanes"]
    text = site.tensorhub("lanes", selection="-plain").out
    assert "left out  tensorhub_decoders.plain: plugin-blocked: plain (tensorhub-contracts 0.1.0): by TENSOR_CONTRACTS_PLUGINS" in text
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    assert site.tensorhub("inspect", tmp_path / "tree", "--decodable").code == 0
    assert site.tensorhub("inspect", tmp_path / "tree", selection="-plain").code == 0  # what it is depends on no decoder
    refused = site.tensorhub("inspect", tmp_path / "tree", "--decodable", "--output", "json", selection="-plain")
    assert refused.code == 1
    (violation,) = json.loads(refused.out)["inspections"][0]["violations"]
    assert violation["code"] == "contract-without-decoder"
    assert "plain (tensorhub-contracts 0.1.0) is blocked: by TENSOR_CONTRACTS_PLUGINS" in violation["remedy"]


def test_b3_10_a_handle_blocks_every_decoder_of_a_contract(install: Installer, tmp_path: Path) -> None:
    site = install(plugin("acme", decoding(BLOCKWISE)), torch=True)
    assert site.tensorhub("lanes").code == 1
    selection = f"-{BLOCKWISE}"
    report = site.plugins(selection=selection)
    assert (names(report["plugins"], "blocked"), report["lane_conflicts"]) == ([], [])
    record = site.lanes(selection=selection)
    assert [(each["module"], each["contract"], each["lanes"]) for each in excluded(record, "contract-blocked")] == [
        ("acme:decode", BLOCKWISE, ["fp8-w8a16+eager", "fp8-w8a16+compiled"]),
        (
            "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise",
            BLOCKWISE,
            ["fp8-w8a16+eager", "fp8-w8a16+compiled", "fp8-w8a32+eager", "fp8-w8a32+compiled"],
        ),
        (
            "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise_w8a8",
            BLOCKWISE,
            ["fp8-w8a8-dynamic+eager", "fp8-w8a8-dynamic+compiled"],
        ),
    ]
    assert BLOCKWISE not in {each["contract"] for each in record["contracts"]}
    assert {"plain.bf16@1", "cozy.fp8-rowwise@1"} <= {each["contract"] for each in record["contracts"]}
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    refused = site.tensorhub("inspect", tmp_path / "tree", "--decodable", "--output", "json", selection="-plain.bf16@1")
    assert refused.code == 1
    assert json.loads(refused.out)["inspections"][0]["violations"][0]["code"] == "contract-without-decoder"


@pytest.mark.parametrize(
    ("command", "selection"),
    [
        ("plugins", "nobody"),
        ("plugins", "-nobody"),
        ("lanes", "int8,-nobody"),
        ("lanes", f"{BLOCKWISE}=nobody"),
        ("contracts", "-acme"),
        ("contracts", "nobody"),
    ],
)
def test_b3_10_an_unknown_name_is_an_error_that_names_the_known_ones(install: Installer, command: str, selection: str) -> None:
    done = install(int8()).tensorhub(command, selection=selection)
    assert (done.code, done.out) == (2, "")
    name = selection.rpartition("-")[2] if selection.endswith("-acme") else "nobody"
    assert f"TENSOR_CONTRACTS_PLUGINS: '{name}' names no installed plugin" in done.err
    assert "there are cozy-fp8-rowwise, cozy-fp8-storage, hf-fp8-blockwise, int8, plain" in done.err


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (BLOCKWISE, f"'{BLOCKWISE}': a contract; {BLOCKWISE}=NAME says which plugin decodes it, -{BLOCKWISE} that none does"),
        (f"{BLOCKWISE}=", "HANDLE=NAME"),
        ("=int8", "HANDLE=NAME"),
        ("fp8=int8", "HANDLE=NAME"),
        (f"{BLOCKWISE}=plain,{BLOCKWISE}=int8", "once for a contract"),
        ("int8,-INT8", "'int8': both allowed and blocked"),
        ("-", "'-': names nothing"),
        ("-acme.nothing@1", "-acme.nothing@1: no contract of this installation"),
    ],
)
def test_b3_10_a_malformed_item_is_a_usage_error(install: Installer, selection: str, said: str) -> None:
    done = install(int8()).tensorhub("plugins", selection=selection)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_b3_10_every_malformed_item_is_named(install: Installer) -> None:
    done = install().tensorhub("plugins", selection=f"{BLOCKWISE},x=y,-")
    assert done.code == 2
    assert done.err.count("TENSOR_CONTRACTS_PLUGINS: ") == 3


def test_an_inspection_obeys_the_selection_too(install: Installer, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    done = install().tensorhub("inspect", tmp_path / "tree", selection="-nobody")
    assert done.code == 2
    assert "'nobody' names no installed plugin" in done.err


def test_an_empty_selection_selects_everything(install: Installer) -> None:
    assert install(int8()).plugins(selection=" , ") == install(int8()).plugins()

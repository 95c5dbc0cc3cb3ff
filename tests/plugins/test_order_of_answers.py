"""Every list of an answer has an order of its own, which no path, no folder and no file decides on, and holds nothing twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.environments import Installer, Project, metadata_folder, project
from tests.support.plugin_sources import BLOCKWISE, HEAD, INT8, UNREAD, contracts, declared, decoding, int8, owning, plugin

BODIES = ("fp8-w8a32", "fp8-w8a16")

#: Names that no hash puts in order by chance.
SEVERAL = ("kilo", "alpha", "mike", "delta", "juliet", "bravo", "golf")


def test_contests_are_sorted_by_contract_and_body_and_their_claimants_by_decoder(install: Installer) -> None:
    shipped = plugin("bravo", decoding(BLOCKWISE, ("fp8-w8a16",)))
    site = install(
        plugin("zulu", decoding(UNREAD, BODIES), entry="alpha"), plugin("yankee", decoding(UNREAD, BODIES), entry="carol"), shipped
    )
    found = site.plugins()["lane_conflicts"]
    assert [(each["contract"], each["body"]) for each in found] == [(UNREAD, "fp8-w8a16"), (UNREAD, "fp8-w8a32"), (BLOCKWISE, "fp8-w8a16")]
    assert [(each["decoders"], each["plugins"]) for each in found[:2]] == [(["yankee:decode", "zulu:decode"], ["carol", "alpha"])] * 2


def test_a_distribution_of_which_two_plugins_claim_a_lane_is_no_winner(install: Installer) -> None:
    both = project("acme", {"one": "acme_one", "two": "acme_two"}, {f"acme_{each}.py": decoding(UNREAD) for each in ("one", "two")})
    site = install(both, plugin("other", decoding(UNREAD)))
    (found,) = site.plugins(selection=f"{UNREAD}=acme")["lane_conflicts"]
    assert found["winner"] == ""
    assert site.tensorhub("lanes", selection=f"{UNREAD}=acme").code == 1
    record = site.lanes(selection=f"{UNREAD}=two")
    assert [each["decoder"] for each in record["contracts"]] == ["acme_two:decode"]


def test_two_entry_points_of_one_module_are_two_plugins(install: Installer) -> None:
    report = install(project("twice", {"once": "twice", "again": "twice"}, {"twice.py": owning(contracts())})).plugins()
    assert [each["name"] for each in report["plugins"] if each["distribution"] == "twice"] == ["again", "once"]
    assert report["lane_conflicts"] == []


def test_one_name_of_two_distributions_is_two_plugins_even_for_one_module(install: Installer, tmp_path: Path) -> None:
    metadata_folder(tmp_path / "other", "other", "1.0", "[tensorhub.decoders]\nint8 = acme_int8\n")
    report = install(int8()).and_folder(tmp_path / "other").plugins()
    both = [each for each in report["plugins"] if each["name"] == "int8"]
    assert [(each["distribution"], each["state"]) for each in both] == [("acme-int8", "conflict"), ("other", "conflict")]


def test_of_many_with_one_name_each_names_all_others_in_order(install: Installer, tmp_path: Path) -> None:
    for each in SEVERAL:
        metadata_folder(tmp_path / each, each, "1.0", f"[tensorhub.decoders]\nsame = {each}\n")
    reports = [install().and_folder(*(tmp_path / each for each in order)).plugins() for order in (SEVERAL, SEVERAL[::-1])]
    assert reports[0] == reports[1]
    for found in (each for each in reports[0]["plugins"] if each["name"] == "same"):
        others = (each for each in sorted(SEVERAL) if each != found["distribution"])
        assert found["reason"] == "its name is taken by " + "; ".join(
            f"{each} of {each} 1.0 ({tmp_path / each / f'{each}-1.0.dist-info'})" for each in others
        )


def test_damaged_metadata_is_sorted_by_its_path(install: Installer, tmp_path: Path) -> None:
    folders = [metadata_folder(tmp_path / each, each, metadata=False) for each in SEVERAL]
    found = install().and_folder(*(each.parent for each in folders)).plugins()["damaged"]
    assert found == [{"metadata": str(each), "reason": "no METADATA"} for each in sorted(folders)]


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (SEVERAL, [f"'{each}' names no installed plugin" for each in sorted(SEVERAL)]),
        (
            [f"-{each}.none@1" for each in SEVERAL],
            [f"-{each}.none@1: no contract of this installation" for each in sorted(SEVERAL)],
        ),
        (
            [sign + each for each in SEVERAL for sign in ("", "-")],
            [f"'{each}': both allowed and blocked" for each in sorted(SEVERAL)],
        ),
    ],
    ids=["unknown-names", "unknown-contracts", "both"],
)
def test_faults_of_a_selection_are_sorted(install: Installer, selection: list[str], said: list[str]) -> None:
    done = install().tensorhub("plugins", selection=",".join(selection))
    assert (done.code, done.out) == (2, "")
    lines = [line.partition("TENSOR_CONTRACTS_PLUGINS: ")[2] for line in done.err.splitlines() if "TENSOR_CONTRACTS_PLUGINS: " in line]
    assert [line.partition(";")[0] for line in lines] == said


# What two plugins describe differently.


def owner(module: str, scale_of: Mapping[str, str]) -> Project:
    """A plugin of the producer `acme` that owns contracts, by the shape of their scales."""
    first, *more = (contracts(handle, scale=scale) for handle, scale in scale_of.items())
    toml = first + "".join(text.partition('producer = "acme"\n')[2] for text in more)
    return plugin(module, HEAD + f"\n@hookimpl\ndef provide_contracts():\n    return read_contracts({toml!r})\n")


SIDECAR = '\n[[sidecar]]\nsuffix = ".acme_scale"\nrole = "weight-scale"\nbeside = [".acme_packed"]\nused_by = "{}"\n'
PAYLOAD = '\n[[payload]]\nsuffix = ".acme_packed"\nused_by = "{}"\n'


@pytest.mark.parametrize(("place", "reason"), [(0, "sidecar .acme_scale"), (1, "payload .acme_packed")])
def test_a_name_that_two_plugins_describe_differently_is_a_conflict(install: Installer, place: int, reason: str) -> None:
    def named(module: str, *used_by: str) -> Project:
        scale = '["out"]' if module == "one" else '["out", 1]'
        tables = SIDECAR.format(used_by[0]) + PAYLOAD.format(used_by[1])
        text = owning(contracts(f"acme.{module}@1", scale=scale) + tables, f"acme.{module}@1")
        return plugin(module, text.replace("}.weight_scale", "}.acme_scale").replace("}.weight", "}.acme_packed"))

    used_by = ["acme", "acme"]
    for other, state in (("acme", "loaded"), ("bravo", "conflict")):
        used_by[place] = other
        both = install(named("one", "acme", "acme"), named("two", *used_by)).by_name()
        assert [(both[each]["state"], both[each]["reason"]) for each in ("one", "two")] == [
            (state, f"{reason} is described differently by {each}" if state == "conflict" else "") for each in ("two", "one")
        ]


def test_of_several_contracts_that_are_described_differently_the_first_is_named(install: Installer) -> None:
    named = install(
        owner("one", {"acme.zulu@1": '["out"]', "acme.alpha@1": '["out", 1]'}),
        owner("two", {"acme.zulu@1": '[1, "out"]', "acme.alpha@1": "[1]"}),
    ).by_name()
    assert [named[each]["reason"] for each in ("one", "two")] == [
        f"contract acme.alpha@1 is described differently by {each}" for each in ("two", "one")
    ]


def test_of_three_owners_of_whom_two_agree_each_names_the_others_in_order(install: Installer) -> None:
    scales = {"alpha": '["out"]', "bravo": '["out", 1]', "carol": '["out"]'}
    named = install(*(owner(each, {INT8: scale}) for each, scale in scales.items())).by_name()
    assert {each: named[each]["reason"] for each in scales} == {
        each: f"contract {INT8} is described differently by {', '.join(other for other in scales if other != each)}" for each in scales
    }


def test_a_refusal_names_no_plugin_that_is_in_use(install: Installer) -> None:
    refused = install(int8(), plugin("failing", "1 / 0\n")).tensorhub("contracts", "show", "acme.nothing@1")
    assert refused.code == 2
    assert "failing (failing 1.0) is broken" in refused.err
    assert "is loaded" not in refused.err


def test_a_plugin_may_give_a_hook_another_name(install: Installer) -> None:
    hook = "\n@hookimpl(specname='provide_decoders')\ndef mine({}):\n    return (decode,)\n"
    named = install(
        plugin("renamed", HEAD + declared(UNREAD) + hook.format("")), plugin("older", HEAD + declared(UNREAD) + hook.format("config"))
    ).by_name()
    assert (named["renamed"]["state"], [each["decoder"] for each in named["renamed"]["decodes"]]) == ("loaded", ["renamed:decode"])
    assert named["older"]["state"] == "broken"
    assert "a hook has another signature: mine(config) where the hook is provide_decoders()" in named["older"]["reason"]


@pytest.mark.parametrize("winner", ["Plain,{handle}=plain", "plain , {handle} = PLAIN"])
def test_a_winner_may_be_named_twice_in_any_spelling(install: Installer, winner: str) -> None:
    handle = "plain.bf16@1"
    done = install().tensorhub("plugins", selection=f"{handle}={winner.format(handle=handle)}")
    assert done.code == 0, done.err


def test_what_stands_after_the_first_equals_sign_is_the_name(install: Installer) -> None:
    done = install().tensorhub("plugins", selection="plain.bf16@1=a=b")
    assert done.code == 2
    assert "'a=b' names no installed plugin" in done.err

"""Contracts that a plugin owns: read, judged as the registry is, and added to it without changing a shipped verdict."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tensorhub_contracts import Inspection, OwnedContracts, Refusal, Registry, RegistryError, inspect, read_contracts
from tensorhub_contracts.commands.contracts import _lines as contract_lines
from tensorhub_contracts.registry.plugin_contracts import with_owned
from tensorhub_contracts.registry.registry import load_registry, resolve
from tensorhub_contracts.registry.sidecar_names import SidecarNames
from tests.layouts.test_families import FAMILIES
from tests.support.checkpoint_files import Tensors
from tests.support.registry_texts import Table, changed, contract, shipped, to_toml
from tests.support.trees import assert_accepted, assert_named_without_decoder, judge

INT8 = "acme.int8-channel@1"
PATH = f"contracts.toml: contract[0] ({INT8})"
TREE: Tensors = {
    "a.weight": ("I8", (64, 32)),
    "a.weight_scale": ("F32", (64, 1)),
    "b.weight": ("I8", (8, 64)),
    "b.weight_scale": ("F32", (8, 1)),
    "norm.weight": ("BF16", (32,)),
}


def example() -> Table:
    """Return INT8 weights with a scale for each row, whose sidecar and whose body of the lane table the shipped registry has."""
    weight = {"name": "{module}.weight", "dtypes": ["I8"], "shapes": [["out", "in"]]}
    scale = {"name": "{module}.weight_scale", "dtypes": ["F32"], "shapes": [["out", 1]]}
    int8 = {
        "handle": INT8,
        "summary": "INT8 weights with one scale for each row.",
        "element": "I8",
        "reference_dequant": "acme.int8_channel.dequant@1",
        "evidence": "code",
        "source": "Acme.",
        "not_provable": ["values", "scale-direction"],
        "scale_direction": "multiply",
        "floors": {"int8-w8a16": "none"},
        "form": [{"name": "matrix", "tensors": {"weight": weight, "scale": scale}}],
    }
    dequant = {"name": "acme.int8_channel.dequant@1", "formula": "weight * scale", "rounding": "once, to the result."}
    return {"schema": 1, "producer": "acme", "contract": [int8], "reference_dequant": [dequant]}


def read(tables: Table) -> OwnedContracts:
    return read_contracts(to_toml(tables))


def merged(tables: Table) -> Registry:
    return with_owned(load_registry(), read(tables))


def refused(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(RegistryError) as caught:
        call()
    return caught.value.problems


def set_in(**facts: Any) -> Callable[[Table], None]:
    return lambda tables: tables["contract"][0].update(facts)


def renamed(tables: Table, original: str, **facts: Any) -> Table:
    """Return a contract of the shipped registry under another handle and with other facts, as a plugin's only one."""
    taken = {**contract(shipped(), original), "decoder": "none", **facts}
    return {"schema": 1, "producer": taken["handle"].partition(".")[0], "contract": [taken], **tables}


# What is read.


def test_a_valid_file_is_read() -> None:
    owned = read(example())
    assert owned.producer == "acme"
    assert list(owned.contracts) == [INT8]
    assert owned[INT8] is owned.contracts[INT8]
    assert (owned[INT8].element, owned[INT8].decoder, owned[INT8].floors) == ("I8", "none", {"int8-w8a16": "none"})
    assert owned[INT8].quantized
    assert [each.name for each in owned.reference_dequants] == ["acme.int8_channel.dequant@1"]
    assert (owned.sidecars, owned.payloads) == ((), ())


def test_a_handle_that_is_not_owned_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        read(example())["hf.fp8-blockwise@1"]


def test_a_dequant_may_be_none_or_one_that_ships() -> None:
    for name in ("none", "plain", "cozy.fp8_rowwise.dequant@1"):
        tables = changed(example(), set_in(reference_dequant=name))
        del tables["reference_dequant"]
        assert read(tables)[INT8].reference_dequant == name


def test_a_plugin_may_bring_names_of_its_own() -> None:
    def change(tables: Table) -> None:
        tables["sidecar"] = [{"suffix": ".acme_scale", "role": "weight-scale", "beside": [".acme_packed"], "used_by": INT8}]
        tables["payload"] = [{"suffix": ".acme_packed", "used_by": INT8}]
        tensors = tables["contract"][0]["form"][0]["tensors"]
        tensors["weight"]["name"], tensors["scale"]["name"] = "{module}.acme_packed", "{module}.acme_scale"

    registry = merged(changed(example(), change))
    assert [each.suffix for each in registry.sidecars] == [*(each.suffix for each in load_registry().sidecars), ".acme_scale"]
    assert [each.suffix for each in registry.payloads] == [*(each.suffix for each in load_registry().payloads), ".acme_packed"]
    assert SidecarNames(registry.sidecars, registry.payloads).primary_suffix("a.acme_packed") == ".acme_packed"


FAULTS = [
    pytest.param(lambda t: t.update(schema=2), "contracts.toml: schema: expected 1, found 2", id="schema"),
    pytest.param(lambda t: t.pop("schema"), "contracts.toml: schema: expected 1, found None", id="no-schema"),
    pytest.param(lambda t: t.update(contract=[]), "contracts.toml: contract: at least one", id="no-contract"),
    pytest.param(lambda t: t.pop("contract"), "contracts.toml: top level: Object missing required field `contract`", id="no-contracts"),
    pytest.param(lambda t: t.pop("producer"), "contracts.toml: top level: Object missing required field `producer`", id="no-producer"),
    pytest.param(lambda t: t.update(producer=5), "contracts.toml: producer: Expected `str`, got `int`", id="producer-is-a-number"),
    pytest.param(lambda t: t.update(surprise=1), "contracts.toml: surprise: unknown key", id="unknown-key"),
    pytest.param(lambda t: t.update(lane=[]), "contracts.toml: lane: unknown key", id="lane-table"),
    pytest.param(lambda t: t.update(superseded=[]), "contracts.toml: superseded: unknown key", id="superseded"),
    pytest.param(
        set_in(colour="blue"), "contracts.toml: contract[0].colour: unknown key", id="unknown-key-of-a-contract"
    ),
    pytest.param(
        lambda t: t["contract"][0].pop("element"), "contracts.toml: contract[0]: Object missing required field `element`", id="no-element"
    ),
    pytest.param(set_in(floors={}), f"{PATH}.floors: a floor for each lane body", id="empty-floors"),
    pytest.param(lambda t: t["contract"][0].pop("floors"), f"{PATH}.floors: a floor for each lane body", id="no-floors"),
    pytest.param(set_in(floors={"int9-w9a9": "none"}), f"{PATH}.floors.int9-w9a9: not a body of the lane table", id="unknown-body"),
    pytest.param(
        set_in(floors={"fp8-w8a16": 89}), f"{PATH}.floors.fp8-w8a16: its weights are F8_E4M3, and the element is I8", id="other-element"
    ),
    pytest.param(set_in(floors={"int8-w8a16": 0}), f"{PATH}.floors.int8-w8a16: a floor is a compute capability", id="zero-floor"),
    pytest.param(set_in(decoder="shipped"), f"{PATH}.decoder: only the framework ships decoders", id="shipped-decoder"),
    pytest.param(set_in(not_provable=["vibes"]), f"{PATH}.not_provable: vibes is not a known word", id="not_provable"),
    pytest.param(
        set_in(known_as=[{"corpus": " ", "handle": "x", "digest": "0" * 64}]), f"{PATH}.known_as[0].corpus: a name", id="no-corpus"
    ),
    pytest.param(
        set_in(known_as=[{"corpus": "x", "handle": "x", "digest": "0" * 63}]),
        f"{PATH}.known_as[0].digest: 64 hexadecimal digits",
        id="short",
    ),
    pytest.param(
        set_in(known_as=[{"corpus": "x", "handle": "x", "digest": "md5:" + "0" * 64}]), f"{PATH}.known_as[0].digest: 64 hex", id="kind"
    ),
    pytest.param(
        set_in(known_as=[{"corpus": "x", "handle": "y", "digest": "0" * 64}, {"corpus": "x", "handle": "y", "digest": "1" * 64}]),
        f"{PATH}.known_as: one digest for each handle of a corpus",
        id="two-digests",
    ),
    pytest.param(
        set_in(known_as=[{"corpus": "x", "handle": "y"}]),
        "contracts.toml: contract[0].known_as[0]: Object missing required field `digest`",
        id="no-digest",
    ),
    pytest.param(set_in(known_as="x"), "contracts.toml: contract[0].known_as: Expected `array`, got `str`", id="known-as-is-text"),
    pytest.param(set_in(reference_dequant="nobody"), f"{PATH}.reference_dequant: nobody is not listed", id="unknown-dequant"),
    pytest.param(
        set_in(handle="other.int8@1"),
        "contracts.toml: contract[0] (other.int8@1).handle: the producer of this file is 'acme'",
        id="foreign-producer",
    ),
    pytest.param(
        set_in(handle="acme-two.int8@1"),
        "contracts.toml: contract[0] (acme-two.int8@1).handle: the producer of this file is 'acme'", id="longer"
    ),
    pytest.param(lambda t: t.update(producer="Acme"), f"{PATH}.handle: the producer of this file is 'Acme'", id="producer-in-capitals"),
    pytest.param(set_in(handle="acme.int8"), "contracts.toml: contract[0] (acme.int8).handle: producer.format@major", id="bad-handle"),
    pytest.param(
        set_in(handle="hf.fp8-blockwise@1"),
        "contracts.toml: contract[0] (hf.fp8-blockwise@1).handle: a shipped contract, and no plugin may replace it",
        id="shipped-handle",
    ),
    pytest.param(
        lambda t: t["contract"].append(copy.deepcopy(t["contract"][0])),
        f"contracts.toml: contract[1] ({INT8}).handle: listed twice",
        id="handle-twice",
    ),
    pytest.param(
        lambda t: t["reference_dequant"].append({**t["reference_dequant"][0], "name": "other.dequant@1"}),
        "contracts.toml: reference_dequant (other.dequant@1).name: begins with the producer, acme.",
        id="foreign-dequant",
    ),
    pytest.param(
        lambda t: t["reference_dequant"].append({**t["reference_dequant"][0], "name": "acmeint.dequant@1"}),
        "contracts.toml: reference_dequant (acmeint.dequant@1).name: begins with the producer, acme.",
        id="dequant-of-a-longer-producer",
    ),
    pytest.param(
        lambda t: t.update(sidecar=[{"suffix": ".weight", "role": "weight-scale", "beside": [""], "used_by": "Acme"}]),
        f"{PATH}.form.matrix.tensors.weight.name: a [[sidecar]] says that '.weight' is a sidecar",
        id="sidecar-of-a-primary-tensor",
    ),
    pytest.param(
        lambda t: t["contract"][0]["form"][0]["tensors"]["scale"].update(name="{module}.weight_wobble"),
        f"{PATH}.form.matrix.tensors.scale.name: no [[sidecar]] describes '.weight_wobble' beside '.weight'",
        id="no-sidecar",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), FAULTS)
def test_a_fault_is_refused_with_its_path_and_nothing_else_is(change: Callable[[Table], None], problem: str) -> None:
    tables = changed(example(), change)
    found = refused(lambda: read(tables))
    assert len([each for each in found if each.startswith(problem)]) == 1, found
    accompanied = any(words in problem for words in ("a shipped contract", "is a sidecar", "'Acme'"))  # one slip, wrong in two ways
    assert len(found) == 1 or accompanied, found


def test_what_another_corpus_calls_a_contract_is_shown_and_no_part_of_the_digest() -> None:
    others = [
        {"corpus": "tensorfs v2", "handle": "cozy.int8-rows@2", "digest": "47a664f3" * 8},
        {"corpus": "a hub", "handle": "int8", "digest": "sha256:" + "0" * 64},
    ]
    plain, known = merged(example()), merged(changed(example(), set_in(known_as=others)))
    assert known.digest(INT8) == plain.digest(INT8)
    assert [(each.corpus, each.handle, each.digest) for each in known.contracts[INT8].known_as] == [tuple(each.values()) for each in others]
    shown = "\n".join(contract_lines(known.contracts[INT8], known))
    assert f"  known as   cozy.int8-rows@2 in tensorfs v2  {'47a664f3' * 8}\n" in shown
    assert "known as" not in "\n".join(contract_lines(plain.contracts[INT8], plain))
    with pytest.raises(Refusal, match="contract-unknown"):
        resolve("cozy.int8-rows@2", known)


def test_a_syntax_error_names_the_file_and_the_line() -> None:
    (problem,) = refused(lambda: read_contracts("schema = 1\n[[contract]\n", name="acme.toml"))
    assert problem.startswith("acme.toml: ")
    assert "line 2" in problem


def test_the_name_of_the_file_stands_before_every_fault() -> None:
    found = refused(
        lambda: read_contracts(to_toml(changed(example(), set_in(floors={}, element="I9", decoder="shipped"))), name="acme.toml")
    )
    assert len(found) == 3
    assert all(each.startswith(f"acme.toml: contract[0] ({INT8}).") for each in found)


def test_structural_faults_are_all_listed() -> None:
    def change(tables: Table) -> None:
        tables["surprise"] = 1
        tables["contract"][0]["colour"] = "blue"
        tables["contract"][0]["form"][0]["tensors"]["scale"]["shade"] = "dark"
        tables["reference_dequant"][0].pop("formula")

    found = refused(lambda: read(changed(example(), change)))
    assert sorted(each.partition(": ")[2].partition(":")[0] for each in found) == [
        "contract[0].colour",
        "contract[0].form[0].tensors.scale.shade",
        "reference_dequant[0]",
        "surprise",
    ]


# What is added to a registry.


def test_the_merged_registry_has_the_shipped_contracts_first_and_the_owned_ones_after_them() -> None:
    registry = merged(example())
    assert list(registry.contracts) == [*load_registry().contracts, INT8]
    assert registry.contracts[INT8] == read(example())[INT8]
    assert registry.reference_dequants == (*load_registry().reference_dequants, *read(example()).reference_dequants)
    assert (registry.sidecars, registry.payloads) == (load_registry().sidecars, load_registry().payloads)
    assert registry.lanes == load_registry().lanes
    assert registry.decoded == load_registry().decoded  # owning a contract is not decoding it


def test_the_digests_of_shipped_contracts_stay_and_the_owned_one_has_its_own() -> None:
    registry = merged(example())
    digests = {handle: registry.digest(handle) for handle in registry.contracts}
    mine = digests.pop(INT8)
    assert digests == {handle: load_registry().digest(handle) for handle in load_registry().contracts}
    assert mine.startswith("sha256:")
    assert mine not in digests.values()


def test_the_given_registry_is_left_as_it_was() -> None:
    given = attrs.evolve(load_registry(), known_digests={})
    before = (dict(given.contracts), given.sidecars, given.payloads, given.reference_dequants, given.decoded)
    added = with_owned(given, read(example()))
    assert added is not given
    assert (dict(given.contracts), given.sidecars, given.payloads, given.reference_dequants, given.decoded) == before
    assert INT8 not in given.known_digests
    assert INT8 not in load_registry().contracts


def test_the_same_facts_twice_are_quiet() -> None:
    once = merged(example())
    twice = with_owned(once, read(example()))
    for name in ("contracts", "sidecars", "payloads", "reference_dequants"):
        assert getattr(twice, name) == getattr(once, name), name


def test_names_that_ship_may_be_repeated_in_the_same_words() -> None:
    def change(tables: Table) -> None:
        tables["sidecar"] = [each for each in shipped()["sidecar"] if each["suffix"] == ".weight_scale"]
        tables["payload"] = shipped()["payload"]

    registry = merged(changed(example(), change))
    assert (registry.sidecars, registry.payloads) == (load_registry().sidecars, load_registry().payloads)


def test_a_name_that_ships_may_not_be_described_differently() -> None:
    (sidecar,) = (each for each in shipped()["sidecar"] if each["suffix"] == ".weight_scale")
    payload = shipped()["payload"][0]

    def change(tables: Table) -> None:
        tables["sidecar"] = [{**sidecar, "role": "global-scale"}]
        tables["payload"] = [{**payload, "dtypes": ["U8"]}]

    assert refused(lambda: merged(changed(example(), change))) == (
        "sidecar .weight_scale: described differently elsewhere",
        f"payload {payload['suffix']}: described differently elsewhere",
    )


def test_a_dequant_that_ships_may_not_be_described_differently() -> None:
    name = "hf.fp8_blockwise.dequant@1"
    other = {"name": name, "formula": "weight / scale", "rounding": "never."}
    tables = renamed({"reference_dequant": [other]}, "hf.fp8-blockwise@1", handle="hf.fp8-other@1", block=[64, 64])
    assert refused(lambda: merged(tables)) == (f"reference_dequant {name}: described differently elsewhere",)


def test_a_leaf_may_not_make_a_sidecar_of_what_a_shipped_contract_has_as_its_weight() -> None:
    """The plugin's own contracts do not show it: `_weight_qdata` is torchao's."""

    def change(tables: Table) -> None:
        tables["sidecar"] = [{"suffix": "_weight_qdata", "role": "producer-note", "beside": [".weight"], "used_by": INT8}]

    found = refused(lambda: read(changed(example(), change)))
    assert found == ("contracts.toml: sidecar (_weight_qdata).suffix: no form of these contracts has such a sidecar",)


def set_tables(**tables: Any) -> Callable[[Table], None]:
    return lambda content: content.update(tables)


def with_leaf(suffix: str, side: str = "", **facts: Any) -> Callable[[Table], None]:
    """Give the example a sidecar, and with `side` a form whose scale has that name."""

    def change(tables: Table) -> None:
        tables["sidecar"] = [{"suffix": suffix, "role": "weight-scale", "beside": [".weight"], "used_by": INT8, **facts}]
        if side:
            tables["contract"][0]["form"][0]["tensors"]["scale"]["name"] = "{module}" + side

    return change


def test_a_leaf_of_a_name_that_nobody_has_is_a_plugins_to_give() -> None:
    assert read(changed(example(), with_leaf(".acme_factor", ".acme_factor"))).sidecars[0].suffix == ".acme_factor"
    assert read(changed(example(), with_leaf(".acme_scale_inv", ".acme_scale_inv"))).sidecars[0].suffix == ".acme_scale_inv"


@pytest.mark.parametrize(
    ("suffix", "side", "facts", "fault"),
    [
        (".weight_scale_inv", "", {"role": "cache-scale"}, "no form of these contracts has such a sidecar"),
        (".acme_scales", "", {}, "no form of these contracts has such a sidecar"),
        (".weight_scale_inv", ".weight_scale_inv", {"role": "cache-scale"}, "takes names from the shipped sidecar _scale_inv"),
        (".weight_scale_inv", ".weight_scale_inv", {"role": "producer-note"}, "takes names from the shipped sidecar _scale_inv"),
        (".weight_scale_inv", ".weight_scale_inv", {"needs_quantized": True}, "takes names from the shipped sidecar _scale_inv"),
        (".bias", ".bias", {}, "ordinary parameters have this name"),
        (".bias", "", {}, "no form of these contracts has such a sidecar"),
    ],
)
def test_a_leaf_may_not_take_a_name_from_others(suffix: str, side: str, facts: dict[str, Any], fault: str) -> None:
    """What ends in a shipped sidecar's suffix would win over it, and loosen or break the verdicts on trees of shipped contracts."""
    found = refused(lambda: read(changed(example(), with_leaf(suffix, side, **facts))))
    assert [each for each in found if fault in each], found


def test_a_payload_that_no_form_has_is_refused() -> None:
    found = refused(lambda: read(changed(example(), set_tables(payload=[{"suffix": "_acme_bytes", "used_by": INT8}]))))
    assert found == ("contracts.toml: payload (_acme_bytes).suffix: no form of these contracts has such a weight",)


def test_a_producer_that_is_not_well_formed_is_said_so() -> None:
    found = refused(lambda: read(changed(example(), set_tables(producer="Acme"))))
    assert [each for each in found if each.startswith("contracts.toml: producer: lower-case")]


def test_two_plugins_may_not_describe_one_handle_differently() -> None:
    registry = merged(example())
    other = read(changed(example(), set_in(scale_direction="none")))
    assert refused(lambda: with_owned(registry, other)) == (f"{INT8}: described differently by another plugin or by the shipped registry",)
    assert registry.contracts[INT8].scale_direction == "multiply"


def test_two_plugins_may_not_describe_one_dequant_differently() -> None:
    other = read(changed(example(), lambda t: t["reference_dequant"][0].update(rounding="twice.")))
    assert refused(lambda: with_owned(merged(example()), other)) == (
        "reference_dequant acme.int8_channel.dequant@1: described differently elsewhere",
    )


@pytest.mark.parametrize("handle", ["cozy.fp8-rowwise@1", "bfl.nvfp4-preswizzled@1"])
def test_a_shipped_layout_under_another_name_is_refused(handle: str) -> None:
    tables = renamed({}, handle, handle="acme.same@1", summary="Another name for it.")
    assert refused(lambda: merged(tables)) == (f"acme.same@1: has the digest of {handle}: two handles name one layout",)


def test_two_owned_names_for_one_layout_are_refused() -> None:
    tables = changed(example(), lambda t: t["contract"].append({**copy.deepcopy(t["contract"][0]), "handle": "acme.int8-row@4"}))
    assert refused(lambda: merged(tables)) == (f"acme.int8-row@4: has the digest of {INT8}: two handles name one layout",)


def test_a_new_major_of_a_shipped_name_may_be_owned() -> None:
    """`hf` is a producer like any: who owns a handle that is not shipped is a matter between plugins."""
    tables = renamed({}, "hf.fp8-blockwise@1", handle="hf.fp8-blockwise@2", block=[64, 64])
    registry = merged(tables)
    assert list(registry.contracts)[-1] == "hf.fp8-blockwise@2"
    assert registry.digest("hf.fp8-blockwise@1") == load_registry().digest("hf.fp8-blockwise@1")
    assert registry.digest("hf.fp8-blockwise@2") != registry.digest("hf.fp8-blockwise@1")


# What it means for a checkpoint.


def decoding(registry: Registry) -> Registry:
    return attrs.evolve(registry, decoded=registry.decoded | {INT8})


def facts(inspection: Inspection) -> tuple[object, ...]:
    return inspection.contract, inspection.digest, inspection.nearest, inspection.violations, inspection.proved, inspection.not_provable


def test_a_tree_of_an_owned_contract_is_accepted_if_a_decoder_is_there(tmp_path: Path) -> None:
    path = judge(tmp_path, TREE).path
    registry = merged(example())
    assert_named_without_decoder(inspect(path, registry=registry), INT8)
    assert_named_without_decoder(inspect(path, registry=registry, contract=INT8), INT8)
    accepted = inspect(path, registry=decoding(registry))
    assert_accepted(accepted, INT8, 2)
    assert accepted.digest == registry.digest(INT8)
    assert_accepted(inspect(path, registry=decoding(registry), contract=INT8), INT8, 2)


def test_a_tree_of_an_owned_contract_is_refused_where_nobody_owns_it(tmp_path: Path) -> None:
    inspection = inspect(judge(tmp_path, TREE).path, registry=load_registry())
    assert inspection.contract is None
    assert INT8 not in {inspection.nearest, *inspection.resembles}


def test_a_tree_that_is_wrong_in_one_scale_is_refused_with_the_owned_contract_named(tmp_path: Path) -> None:
    path = judge(tmp_path, {**TREE, "b.weight_scale": ("F32", (1, 64))}).path
    inspection = inspect(path, registry=decoding(merged(example())))
    assert inspection.contract is None
    assert "b.weight_scale" in {each.object for each in inspection.violations}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_verdict_on_a_shipped_layout_stays(family: Any, tmp_path: Path) -> None:
    path = judge(tmp_path, family.tensors, family.config, files=family.files).path
    before = facts(inspect(path, registry=load_registry()))
    assert facts(inspect(path, registry=merged(example()))) == before
    assert facts(inspect(path, registry=decoding(merged(example())))) == before

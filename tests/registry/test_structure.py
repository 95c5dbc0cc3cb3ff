"""The registry's structure: every fault is refused with its path, and several are all listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensorhub_contracts import RegistryError
from tensorhub_contracts.registry.check import digest_clashes, faults
from tensorhub_contracts.registry.contract import NOT_PROVABLE, RegistryFile
from tensorhub_contracts.registry.registry import load_registry, parse_registry, registry_path
from tests.support.registry_texts import SHIPPED_TEXT, Table, changed, contract, shipped, small, to_toml

BLOCKWISE = "hf.fp8-blockwise@1"


def problems(tables: Table) -> tuple[str, ...]:
    with pytest.raises(RegistryError) as caught:
        parse_registry(to_toml(tables), name="r.toml")
    return caught.value.problems


MARK: Table = {"name": "m", "dtypes": ["U8"], "shapes": [[0]]}


def in_blockwise(key: str, value: object) -> Callable[[Table], None]:
    """A change that sets a fact of `hf.fp8-blockwise@1`, the second contract of the small registry."""

    def change(tables: Table) -> None:
        contract(tables, BLOCKWISE)[key] = value

    return change


def test_the_shipped_registry_is_sound() -> None:
    assert Path(registry_path()) == Path(__file__).parents[2] / "registry.toml"
    parsed = parse_registry(SHIPPED_TEXT)
    assert parsed.contracts == load_registry().contracts
    assert parsed.sidecars == load_registry().sidecars


def test_the_small_registry_is_sound_and_the_writer_changes_nothing() -> None:
    assert list(parse_registry(to_toml(small())).contracts) == ["plain.bf16@1", BLOCKWISE]
    assert parse_registry(to_toml(shipped())).contracts == load_registry().contracts


def test_the_first_release_knows_these() -> None:
    """The names that a refusal must be able to give from the first release on."""
    named = {
        "plain.bf16@1", "plain.f16@1", "plain.f32@1", "plain.mixed@1", "hf.fp8-blockwise@1", "cozy.fp8-rowwise@1",
        "cozy.fp8-storage@1", "cozy.nvfp4-flat@1", "bfl.nvfp4-preswizzled@1",
    }  # fmt: skip
    assert named <= set(load_registry().contracts)
    shipped_decoders = {handle for handle, each in load_registry().contracts.items() if each.decoder == "shipped"}
    assert shipped_decoders == {
        "plain.bf16@1", "plain.f16@1", "plain.f32@1", "plain.mixed@1", "hf.fp8-blockwise@1", "cozy.fp8-rowwise@1",
        "cozy.fp8-storage@1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        pytest.param(lambda t: t.update(schema=2), "schema", "2", id="schema"),
        pytest.param(in_blockwise("marker", [{**MARK, "name": "bias"}]), "contract[1]", "no other tensor", id="marker"),
        pytest.param(in_blockwise("marker", [{**MARK, "dtypes": ["U9"]}]), "contract[1]", "U9", id="marker-dtype"),
        pytest.param(lambda t: t.pop("schema"), "schema", "None", id="no-schema"),
        pytest.param(lambda t: t.update(surprise=1), "surprise", "unknown", id="unknown-top-level-key"),
        pytest.param(in_blockwise("colour", "blue"), "contract[1]", "colour", id="unknown-key"),
        pytest.param(in_blockwise("block", [128, "128"]), "contract[1].block[1]", "int", id="wrong-type-in-a-list"),
        pytest.param(in_blockwise("block", [128.0, 128]), "contract[1].block[0]", "int", id="float-for-int"),
        pytest.param(in_blockwise("block", [128]), "contract[1].block", "2", id="short-list"),
        pytest.param(in_blockwise("block", [True, 128]), "contract[1].block[0]", "int", id="bool-for-int"),
        pytest.param(in_blockwise("whole_tree", "yes"), "contract[1].whole_tree", "bool", id="wrong-type"),
        pytest.param(in_blockwise("evidence", "hearsay"), "contract[1].evidence", "hearsay", id="closed-list"),
        pytest.param(in_blockwise("scale_direction", "divide"), "contract[1].scale_direction", "divide", id="direction"),
        pytest.param(in_blockwise("floors", {"fp8-w8a16": "8.9"}), "contract[1].floors", "8.9", id="floor"),
        pytest.param(lambda t: contract(t, BLOCKWISE).pop("element"), "contract[1]", "element", id="missing-key"),
        pytest.param(lambda t: contract(t, BLOCKWISE).pop("not_provable"), "contract[1]", "not_provable", id="missing-list"),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][1]["tensors"]["scale"].update(dtype="F32"),
            "contract[1].form[1].tensors",
            "dtype",
            id="unknown-key-deep-down",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["declares"][0]["require"][1].update(equals=1.5),
            "contract[1].declares[0].require[1].equals",
            "float",
            id="wrong-type-deep-down",
        ),
        pytest.param(lambda t: t["sidecar"][0].update(role="weight"), "sidecar[0].role", "weight", id="sidecar-role"),
        pytest.param(lambda t: t["sidecar"][3].pop("beside"), "sidecar[3]", "beside", id="sidecar-missing-key"),
        pytest.param(lambda t: t["payload"][0].update(dtypes="U8"), "payload[0].dtypes", "array", id="payload"),
    ],
)
def test_a_structural_fault_is_refused_with_its_path(change: Callable[[Table], None], path: str, words: str) -> None:
    (problem,) = problems(changed(small(), change))
    assert problem.startswith(f"r.toml: {path}"), problem
    assert words in problem.removeprefix(f"r.toml: {path}") or words in problem, problem


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        pytest.param(in_blockwise("element", "F8"), f"contract[1] ({BLOCKWISE}).element", "F8", id="element"),
        pytest.param(in_blockwise("reference_dequant", "nobody"), f"contract[1] ({BLOCKWISE}).reference_dequant", "nobody", id="dequant"),
        pytest.param(in_blockwise("not_provable", ["vibes"]), f"contract[1] ({BLOCKWISE}).not_provable", "vibes", id="not_provable"),
        pytest.param(
            in_blockwise("floors", {"fp8-w8a16": 0}), f"contract[1] ({BLOCKWISE}).floors.fp8-w8a16", "none", id="silent-zero-floor"
        ),
        pytest.param(
            in_blockwise("unquantized", {"matrix_dtypes": ["bf16"]}),
            f"contract[1] ({BLOCKWISE}).unquantized",
            "bf16",
            id="unquantized-dtype",
        ),
        pytest.param(in_blockwise("handle", "HF.fp8-blockwise@1"), "contract[1] (HF.fp8-blockwise@1).handle", "lower case", id="handle"),
        pytest.param(in_blockwise("handle", "plain.bf16@1"), "contract[1] (plain.bf16@1).handle", "listed twice", id="duplicate-handle"),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"].pop("weight"),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors",
            "'weight'",
            id="no-primary",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["weight"].update(dtypes=["F8_E4M3FN"]),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.weight.dtypes",
            "F8_E4M3FN",
            id="dtype",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["scale"].update(shapes=[["out/0", "in"]]),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.scale.shapes",
            "out/0",
            id="division-by-zero",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["scale"].update(shapes=[["out", -1]]),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.scale.shapes",
            "-1",
            id="negative-dimension",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["scale"].update(shapes=[["out", 0]]),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.scale.shapes",
            "positive number, not 0",
            id="dimension-of-nothing",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["scale"].update(name="{module}.weight_wobble"),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.scale.name",
            "weight_wobble",
            id="sidecar-without-a-sidecar",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["weight"].update(name="weight"),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.weight.name",
            "placeholder",
            id="no-placeholder",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["form"][0]["tensors"]["weight"].update(name="{module}.we}ight"),
            f"contract[1] ({BLOCKWISE}).form.matrix.tensors.weight.name",
            "placeholder",
            id="second-brace",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["declares"][0]["require"][0].pop("equals"),
            f"contract[1] ({BLOCKWISE}).declares[0].quant_method",
            "exactly one",
            id="requirement-of-nothing",
        ),
        pytest.param(
            lambda t: contract(t, BLOCKWISE)["declares"][0]["require"][0].update(null=True),
            f"contract[1] ({BLOCKWISE}).declares[0].quant_method",
            "exactly one",
            id="requirement-of-two",
        ),
        pytest.param(
            lambda t: t.update(conversion=[{"source": ["plain.bf16@1"], "to": ["no.where@1"], "kind": "producible"}]),
            "conversion[0]",
            "no.where@1",
            id="conversion",
        ),
        pytest.param(
            lambda t: t.update(superseded=[{"handle": "hf.fp8-blockwise@0", "digest": "sha256:0", "by": "no.where@1"}]),
            "superseded[0].by",
            "no.where@1",
            id="superseded-by-nothing",
        ),
        pytest.param(
            lambda t: t.update(superseded=[{"handle": "plain.bf16@1", "digest": "sha256:0", "by": BLOCKWISE}]),
            "superseded[0].handle",
            "plain.bf16@1",
            id="superseded-and-listed",
        ),
    ],
)
def test_a_fault_that_structure_cannot_show_is_refused_with_its_path(change: Callable[[Table], None], path: str, words: str) -> None:
    found = [problem for problem in problems(changed(small(), change)) if problem.startswith(f"r.toml: {path}")]
    assert found
    assert any(words in problem for problem in found), found


def test_several_structural_faults_are_all_listed(tmp_path: Path) -> None:
    def change(tables: Table) -> None:
        tables["contract"][0]["colour"] = "blue"
        tables["contract"][1]["block"] = [128]
        tables["sidecar"][2].pop("role")
        tables["payload"][1]["used_by"] = 5
        tables["surprise"] = 1

    found = problems(changed(small(), change))
    for path in ("contract[0]", "contract[1].block", "sidecar[2]", "payload[1].used_by", "surprise"):
        assert sum(problem.startswith(f"r.toml: {path}") for problem in found) == 1, found
    assert len(found) == 5


def test_several_other_faults_are_all_listed() -> None:
    def change(tables: Table) -> None:
        first, second = tables["contract"]
        first.update(element="BF17", floors={}, not_provable=["vibes", "hunches"])
        second.update(reference_dequant="nobody", floors={"fp8-w8a16": 0, "fp8-w8a32": -1})

    found = problems(changed(small(), change))
    assert len(found) == 6, found


def test_a_syntax_error_names_the_file_and_the_line() -> None:
    with pytest.raises(RegistryError) as caught:
        parse_registry("schema = 1\n[[contract]\n", name="r.toml")
    (problem,) = caught.value.problems
    assert problem.startswith("r.toml: ")
    assert "line 2" in problem


def test_two_handles_of_one_layout_are_a_fault() -> None:
    def change(tables: Table) -> None:
        tables["contract"].append({**contract(tables, BLOCKWISE), "handle": "acme.fp8-block@3", "summary": "Same facts, other name."})

    (problem,) = problems(changed(small(), change))
    assert "acme.fp8-block@3" in problem
    assert BLOCKWISE in problem
    assert digest_clashes({"a.b@1": "x", "a.b@2": "y", "c.d@1": "x", "e.f@1": "x"}) == [
        "c.d@1: has the digest of a.b@1: two handles name one layout",
        "e.f@1: has the digest of a.b@1: two handles name one layout",
    ]


def test_the_shipped_registry_has_no_two_names_for_one_layout() -> None:
    registry = load_registry()
    assert not digest_clashes({handle: registry.digest(handle) for handle in registry.contracts})


# Every word of the registry is used: a sidecar that no contract has and no trap needs would be dead weight, or a misspelling.


def test_every_sidecar_of_every_contract_has_a_leaf_and_every_other_leaf_says_who_uses_it() -> None:
    registry = load_registry()
    named = {
        sidecar.suffix
        for contract in registry.contracts.values()
        for form in contract.form
        for role, tensor in form.tensors.items()
        if role != "weight"
        for sidecar in registry.sidecars
        if tensor.suffix.endswith(sidecar.suffix) or f".{tensor.name}".endswith(sidecar.suffix)
    }
    beside_contracts = {sidecar.suffix for sidecar in registry.sidecars} - named
    # In no contract of ours, and in published trees: each would otherwise pass as an ordinary parameter.
    assert beside_contracts == {"_scales_inv", ".weight_zero_point", ".k_scale", ".v_scale"}
    assert all(sidecar.used_by.strip() for sidecar in registry.sidecars)
    assert len({sidecar.suffix for sidecar in registry.sidecars}) == len(registry.sidecars)


def test_every_payload_name_is_a_contracts_primary_tensor() -> None:
    registry = load_registry()
    primaries = {form.primary.suffix for contract in registry.contracts.values() for form in contract.form}
    assert {payload.suffix for payload in registry.payloads} <= primaries


def test_every_word_for_what_is_not_proved_is_used_and_known() -> None:
    used = {word for contract in load_registry().contracts.values() for word in contract.not_provable}
    assert used == set(NOT_PROVABLE)
    for each in load_registry().contracts.values():
        assert ("values" if each.quantized else "dense-values") in each.not_provable


def test_every_reference_dequant_is_used_and_every_shipped_contract_has_one() -> None:
    registry = load_registry()
    used = {contract.reference_dequant for contract in registry.contracts.values()} - {"none"}
    assert used == {each.name for each in registry.reference_dequants}
    for handle, each in registry.contracts.items():
        assert (each.reference_dequant != "none") == (each.decoder == "shipped"), handle


def test_no_edge_joins_two_quantized_contracts() -> None:
    """Blockwise and rowwise are producible from an unquantized source, and never convertible into each other."""
    registry = load_registry()
    for edge in registry.conversions:
        for source in edge.source:
            for target in edge.to:
                quantized = registry.contracts[source].quantized, registry.contracts[target].quantized
                assert quantized == ((False, True) if edge.kind == "producible" else (True, False)), (source, target)


def test_the_judgement_sees_what_the_structure_let_through() -> None:
    parsed = parse_registry(SHIPPED_TEXT)
    content = RegistryFile(schema=1, contract=tuple(parsed.contracts.values()), sidecar=(), payload=parsed.payloads)
    found = faults(content)
    assert any("no [[sidecar]] describes" in fault for fault in found)
    assert any("reference_dequant" in fault for fault in found)

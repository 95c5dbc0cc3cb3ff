"""ComfyUI's quantized files: marked by a tensor, noted beside each weight, or declared in the header's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tests.support.checkpoint_files import write_sparse
from tests.support.trees import (
    Fault,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    comfy_metadata,
    fp8_config,
    judge,
    unit,
    why,
)

SCALED, NOTED, DECLARED = "comfy.fp8-scaled@1", "comfy.fp8-noted@1", "comfy.fp8-declared@1"
E4M3 = "float8_e4m3fn"


def scaled(module: str = "blocks.0.q") -> Tree:
    return {f"{module}.weight": ("F8_E4M3", (64, 32)), f"{module}.scale_weight": ("F32", ())}


def noted(module: str = "blocks.0.q", **leaves: tuple[str, tuple[int, ...]]) -> Tree:
    return {
        f"{module}.weight": ("F8_E4M3", (64, 32)),
        f"{module}.weight_scale": ("F32", ()),
        f"{module}.comfy_quant": ("U8", (27,)),
        **{f"{module}.{leaf}": each for leaf, each in leaves.items()},
    }


def declared(*modules: str) -> Tree:
    return {name: each for module in modules for name, each in noted(module).items() if not name.endswith("comfy_quant")}


# ------------------------------------------------------------ the marker


@pytest.mark.parametrize("shape", [(0,), (2,)], ids=str)
@pytest.mark.parametrize("dtype", ["F8_E4M3", "F32"])
@pytest.mark.parametrize("name", ["scaled_fp8", "model.diffusion_model.scaled_fp8", "text_encoders.t5xxl.transformer.scaled_fp8"])
def test_the_marker_may_stand_at_the_root_and_under_any_prefix(name: str, dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**scaled(), name: (dtype, shape), **bf16("norm.weight", 8)})
    assert_named_without_decoder(inspection, SCALED)
    assert inspection.unit_count == 1
    assert inspection.groups is not None
    assert list(inspection.groups.markers) == [name]
    assert name in inspection.sidecars
    assert name not in {*inspection.groups.unquantized, *inspection.groups.other, *inspection.groups.geometry_of}


def test_a_file_of_several_models_has_a_marker_for_each_and_one_without_any_is_read_as_before(tmp_path: Path) -> None:
    markers: Tree = {f"{prefix}scaled_fp8": ("F8_E4M3", (0,)) for prefix in ("", "a.", "text_encoders.t5xxl.")}
    assert_named_without_decoder(judge(tmp_path, {**scaled(), **markers}), SCALED)
    assert_named_without_decoder(judge(tmp_path, scaled()), SCALED)


@pytest.mark.parametrize(
    "geometry",
    [("F8_E5M2", (0,)), ("F8_E5M2", (2,)), ("F8_E4M3", ()), ("F8_E4M3", (1,)), ("F8_E4M3", (0, 2)), ("BF16", (2,)), ("U8", (2,))],
    ids=str,
)
def test_any_other_marker_says_something_else(geometry: tuple[str, tuple[int, ...]], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**scaled(), "scaled_fp8": geometry})
    assert_refused(inspection, Fault("marker-invalid", "scaled_fp8", "F8_E4M3 or F32 [0] or [2]", geometry[0]))


@pytest.mark.parametrize(
    ("tree", "config"),
    [
        pytest.param(bf16("w.weight", 8, 8), None, id="plain"),
        pytest.param({"w.weight": ("F8_E4M3", (64, 32))}, None, id="storage"),
        pytest.param({"w.weight": ("F8_E4M3", (64, 32)), "w.weight_scale": ("F32", (64,))}, None, id="rowwise"),
        pytest.param(unit("w", 256, 128), fp8_config(), id="blockwise"),
        pytest.param(noted(), None, id="noted"),
    ],
)
def test_the_marker_is_refused_in_every_other_contract(tree: Tree, config: dict[str, Any] | None, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**tree, "a.scaled_fp8": ("F8_E4M3", (0,))}, config)
    marker = [each for each in inspection.violations if each.code == "marker-foreign"]
    assert [(each.object, each.resembles) for each in marker] == [("a.scaled_fp8", SCALED)], why(inspection)
    assert set(inspection.codes) <= {"marker-foreign", "layout-undeclared", "declaration-missing"}
    assert not {"weight-name", "weight-empty", "weight-rank", "scale-missing"} & set(inspection.codes)


def test_a_name_that_only_ends_like_the_marker_is_none(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**scaled(), "my_scaled_fp8": ("F8_E4M3", (2,))})
    assert "marker-foreign" not in inspection.codes
    assert inspection.contract is None


# ------------------------------------------------------------ the notes


@pytest.mark.parametrize("leaves", [{}, {"input_scale": ("F32", ())}], ids=["dynamic", "static"])
@pytest.mark.parametrize("metadata", [None, comfy_metadata(E4M3, "blocks.0.q")], ids=["notes", "both"])
def test_a_note_beside_each_weight(leaves: Any, metadata: dict[str, str] | None, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**noted(**leaves), **bf16("norm.weight", 8)}, metadata=metadata)
    assert_named_without_decoder(inspection, NOTED)
    assert any("notes beside the weights" in statement for statement, _ in inspection.not_provable)


@pytest.mark.parametrize(
    ("leaf", "geometry", "code"),
    [
        ("weight_scale", ("F32", (1,)), "scale-rank"),
        ("weight_scale", ("F32", (64,)), "scale-rank"),
        ("weight_scale", ("BF16", ()), "scale-dtype"),
        ("comfy_quant", ("I8", (27,)), "scale-dtype"),
        ("comfy_quant", ("U8", (0,)), "scale-grid"),
        ("comfy_quant", ("U8", (3, 9)), "scale-rank"),
        ("input_scale", ("F32", (32,)), "scale-rank"),
        ("weight_scale_2", ("F32", ()), "sidecar-forbidden"),
    ],
)
def test_what_lies_beside_a_noted_weight_is_exact(leaf: str, geometry: tuple[str, tuple[int, ...]], code: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, noted(**{leaf: geometry}))
    assert_refused(inspection, Fault(code, f"blocks.0.q.{leaf}"))
    assert inspection.nearest == NOTED


def test_every_weight_has_a_note_or_none_has(tmp_path: Path) -> None:
    tree = {**noted("a"), **declared("b")}
    for metadata in (None, comfy_metadata(E4M3, "a", "b"), comfy_metadata(E4M3, "b")):
        inspection = judge(tmp_path, tree, metadata=metadata)
        assert inspection.contract is None
        assert "contract-without-decoder" not in inspection.codes


def test_a_note_without_its_weight_is_an_orphan(tmp_path: Path) -> None:
    assert "scale-orphan" in judge(tmp_path, {**noted("a"), "b.comfy_quant": ("U8", (27,))}).codes


# ------------------------------------------------------------ the header's metadata


@pytest.mark.parametrize("shards", [1, 3])
def test_the_metadata_names_every_module(shards: int, tmp_path: Path) -> None:
    tree = {**declared("a.q", "b.k"), "a.q.input_scale": ("F32", ()), **bf16("norm.weight", 8)}
    inspection = judge(tmp_path, tree, metadata=comfy_metadata(E4M3, "a.q", "b.k"), shards=shards)
    assert_named_without_decoder(inspection, DECLARED)
    assert inspection.unit_count == 2


def test_without_metadata_nothing_is_declared(tmp_path: Path) -> None:
    inspection = judge(tmp_path, declared("a"))
    assert inspection.contract is None
    assert "declaration-missing" in inspection.codes


def test_modules_that_are_not_there_and_weights_that_are_not_named_are_listed(tmp_path: Path) -> None:
    inspection = judge(tmp_path, declared("a", "b"), metadata=comfy_metadata(E4M3, "a", "c", "model.b"))
    assert_refused(
        inspection,
        Fault("declared-module-missing", "c", "layers"),
        Fault("declared-module-missing", "model.b", "layers"),
        Fault("module-undeclared", "b.weight", found="b is not among the 3 modules"),
    )


def test_the_names_are_exact_and_a_noted_tree_is_held_to_them_too(tmp_path: Path) -> None:
    inspection = judge(tmp_path, noted("a"), metadata=comfy_metadata(E4M3, "a.weight"))
    assert {each.code for each in inspection.violations} == {"declared-module-missing", "module-undeclared"}


def layers(**entries: Any) -> str:
    return json.dumps({"format_version": "1.0", "layers": entries})


@pytest.mark.parametrize(
    ("text", "key", "code"),
    [
        (layers(a={"format": "float8_e5m2"}), "layers.a.format", "declaration-mismatch"),
        (layers(a={"format": "int8_tensorwise"}), "layers.a.format", "declaration-mismatch"),
        (layers(a={"format": None}), "layers.a.format", "declaration-incomplete"),
        (layers(a={}), "layers.a.format", "declaration-incomplete"),
        (layers(a={"format": E4M3, "convrot": True}), "layers.a", "declaration-mismatch"),
        (layers(a=E4M3), "layers.a", "declaration-invalid"),
        (layers(), "layers.*", "declaration-incomplete"),
        (json.dumps({"format_version": "1.0"}), "layers.*.format", "declaration-incomplete"),
        (json.dumps({"format_version": "2.0", "layers": {"a": {"format": E4M3}}}), "format_version", "declaration-mismatch"),
        (json.dumps({"format_version": 1.0, "layers": {"a": {"format": E4M3}}}), "format_version", "declaration-invalid"),
    ],
)
def test_what_the_metadata_says_is_judged_key_by_key(text: str, key: str, code: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, declared("a"), metadata={"_quantization_metadata": text}, contract=DECLARED)
    faults = [(each.code, each.object) for each in inspection.violations]
    assert (code, f"model.safetensors: __metadata__._quantization_metadata: {key}") in faults, why(inspection)
    assert judge(tmp_path, declared("a"), metadata={"_quantization_metadata": text}).contract is None


def test_a_version_may_be_absent_and_how_it_is_multiplied_changes_no_byte(tmp_path: Path) -> None:
    content = json.dumps({"layers": {"a": {"format": E4M3, "full_precision_matrix_mult": True}}})
    assert_named_without_decoder(judge(tmp_path, declared("a"), metadata={"_quantization_metadata": content}), DECLARED)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("[]", "list"),
        ("null", "NoneType"),
        ('{"layers": {"a": {"format": "x"}, "a": {"format": "y"}}}', "'a' more than once"),
        ('{"layers": NaN}', "NaN"),
        ("{" * 100_000, "nested too deeply"),
        ('{"layers": "' + "x" * 16_000_000 + '"}', "16,000,014 characters"),
    ],
    ids=["empty", "list", "null", "twice", "nan", "deep", "long"],
)
def test_the_text_is_strict_json_and_bounded(text: str, found: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, declared("a"), metadata={"_quantization_metadata": text})
    (violation,) = inspection.violations
    assert (violation.code, violation.shard) == ("declaration-invalid", "model.safetensors")
    assert found in violation.found or "Expecting property name" in violation.found


def two_shards(folder: Path, first: Any, second: Any) -> Path:
    folder.mkdir()
    for number, (module, content) in enumerate((("a", first), ("b", second)), start=1):
        metadata = {} if content is None else {"_quantization_metadata": json.dumps(content)}
        write_sparse(folder / f"model-0000{number}-of-00002.safetensors", declared(module), metadata)
    return folder


A, B = {"format_version": "1.0", "layers": {"a": {"format": E4M3}}}, {"format_version": "1.0", "layers": {"b": {"format": E4M3}}}
BOTH = {"format_version": "1.0", "layers": {**A["layers"], **B["layers"]}}  # type: ignore[dict-item]  # mypy sees str | dict


@pytest.mark.parametrize(("first", "second"), [(A, B), (BOTH, None), (None, BOTH), (BOTH, BOTH), (BOTH, A)])
def test_shards_declare_together(first: Any, second: Any, tmp_path: Path) -> None:
    assert_named_without_decoder(inspect(two_shards(tmp_path / "tree", first, second)), DECLARED)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (A, None, "module-undeclared"),
        (BOTH, {**BOTH, "layers": {"b": {"format": "nvfp4"}}}, "declaration-invalid"),
        (A, {**B, "format_version": "2.0"}, "declaration-invalid"),
        (BOTH, {"format_version": "1.0"}, "declaration-invalid"),
        (BOTH, [], "declaration-invalid"),
    ],
)
def test_shards_that_contradict_each_other_are_refused(first: Any, second: Any, code: str, tmp_path: Path) -> None:
    inspection = inspect(two_shards(tmp_path / "tree", first, second))
    assert inspection.contract is None
    assert code in inspection.codes, why(inspection)


@pytest.mark.parametrize("tree", [bf16("a.weight", 8, 8), {"a.weight": ("F8_E4M3", (8, 8))}], ids=["plain", "storage"])
def test_a_tree_that_nothing_declares_may_not_be_declared_here(tree: Tree, tmp_path: Path) -> None:
    inspection = judge(tmp_path, tree, metadata=comfy_metadata(E4M3, "a"))
    assert inspection.contract is None
    assert judge(tmp_path, tree).contract is not None


def test_the_metadata_and_a_configuration_that_disagree_are_a_conflict(tmp_path: Path) -> None:
    inspection = judge(tmp_path, declared("a"), fp8_config(), metadata=comfy_metadata(E4M3, "a"))
    assert "declaration-conflict" in inspection.codes


def test_other_metadata_declares_nothing(tmp_path: Path) -> None:
    for metadata in ({"modelspec.title": "x"}, {"quantization_metadata": "{}"}, {"_quantization": "{"}):
        assert_accepted(judge(tmp_path, bf16("a.weight", 8, 8), metadata=metadata), "plain.bf16@1", 0)

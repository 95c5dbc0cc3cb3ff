"""What a refusal says where several things could be said: which scale it names, which of two codes, in which order."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from tensorhub_contracts import inspect, inspect_planned
from tensorhub_contracts.checkpoints.header import Header, read_header
from tensorhub_contracts.registry.registry import parse_registry
from tests.support.checkpoint_files import Tensors, file_bytes, header_bytes, payload_size, write_checkpoint
from tests.support.registry_texts import Table, changed, contract, small, to_toml
from tests.support.trees import (
    BLOCKWISE,
    Fault,
    Tree,
    assert_accepted,
    assert_refused,
    bf16,
    compressed_tensors_config,
    fp8_config,
    judge,
    stacked_unit,
    unit,
)

BODY = unit("layers.0.up", 512, 256)


def orphan(module: str, suffix: str) -> Tree:
    return {f"{module}.{suffix}": ("F32", (4, 2))}


@pytest.mark.parametrize(
    ("suffixes", "mixed"),
    [
        (["weight_scale_inv"], False),
        (["weight_scale_inv", "weight_scale"], True),
        (["weight_scale", "weight_scale_inv"], True),
        (["input_scale"], False),
    ],
)
def test_scales_without_a_weight_are_of_another_layout_if_no_unit_has_their_name(tmp_path: Path, suffixes: list[str], mixed: bool) -> None:
    tensors = dict(BODY)
    for place, suffix in enumerate(suffixes):
        tensors |= orphan(f"layers.{place + 1}.up", suffix)
    faults = [Fault("scale-orphan", f"layers.{place + 1}.up.{suffix}") for place, suffix in enumerate(suffixes)]
    assert_refused(judge(tmp_path, tensors, fp8_config()), *faults, *([Fault("layout-mixed")] if mixed else []))


def test_orphans_alone_are_not_mixed(tmp_path: Path) -> None:
    tensors = orphan("a", "weight_scale_inv") | orphan("b", "weight_scale") | bf16("norm.weight", 256)
    assert "layout-mixed" not in judge(tmp_path, tensors, fp8_config()).codes


# Matrices of several dtypes.


def test_matrices_of_a_tree_that_is_quantized_are_listed_one_by_one(tmp_path: Path) -> None:
    tensors: Tree = {**BODY, "a.weight": ("BF16", (8, 8)), "b.weight": ("F32", (8, 8))}
    inspection = judge(tmp_path, tensors, contract="plain.bf16@1")
    assert_refused(
        inspection, Fault("weight-dtype", "layers.0.up.weight"), Fault("unquantized-dtype", "b.weight"), Fault("contract-mismatch")
    )


def test_matrices_beside_no_unit_are_listed_one_by_one(tmp_path: Path) -> None:
    tensors: Tree = {"a.weight": ("BF16", (8, 8)), "b.weight": ("F64", (8, 8))}
    assert_refused(
        judge(tmp_path, tensors, fp8_config(), contract=BLOCKWISE),
        Fault("units-missing"),
        Fault("unquantized-dtype", "b.weight", found="F64"),
    )


# Which scale.


def test_a_declared_block_is_compared_with_the_scale_of_the_weight_and_no_other(tmp_path: Path) -> None:
    tensors = {**BODY, "layers.0.up.input_scale": ("F32", ())}
    assert_refused(
        judge(tmp_path, tensors, fp8_config(weight_block_size=[64, 64])),
        Fault("declaration-mismatch", "config.json: quantization_config: weight_block_size"),
        Fault("declaration-contradicts-grid", "layers.0.up.weight_scale_inv", "[8, 4]", "[4, 2]"),
        Fault("sidecar-forbidden", "layers.0.up.input_scale"),
    )


def test_a_declared_block_is_compared_where_there_is_a_scale_of_a_matrix(tmp_path: Path) -> None:
    """Beside a weight without a scale and one of one dimension stands one that is compared, whichever comes first."""
    tensors: Tree = {
        "a.weight": ("F8_E4M3", (512, 256)),
        "b.weight": ("F8_E4M3", (512,)),
        "b.weight_scale_inv": ("F32", (4,)),
        **BODY,
        **stacked_unit("experts.up", 2, 512, 256),
    }
    found = judge(tmp_path, tensors, fp8_config(weight_block_size=[64, 64])).violations
    assert {(each.object, each.found, each.expected) for each in found if each.code == "declaration-contradicts-grid"} == {
        ("layers.0.up.weight_scale_inv", "[4, 2]", "grid [8, 4] for weight [512, 256] under the declared block [64, 64]"),
        ("experts.up_scale_inv", "[2, 4, 2]", "grid [2, 8, 4] for weight [2, 512, 256] under the declared block [64, 64]"),
    }


def test_a_scale_of_an_activation_is_not_the_first_scale_of_a_weight(tmp_path: Path) -> None:
    tensors: Tree = {
        "a.weight": ("F8_E4M3", (512, 256)),
        "a.weight_scale_inv": ("F32", (512, 1)),
        "a.input_scale": ("F32", ()),
    }
    inspection = judge(tmp_path, tensors, compressed_tensors_config("channel"), contract="compressed-tensors.fp8-channel@1")
    (violation,) = (each for each in inspection.violations if each.object == "a.weight_scale_inv")
    assert (violation.code, violation.expected) == ("scale-name-foreign", "the scale in .weight_scale")


# Which contract.


def test_contracts_that_a_declaration_may_mean_are_listed_in_order(tmp_path: Path) -> None:
    inspection = judge(tmp_path, BODY, fp8_config(scale_fmt="ue8m0"), contract="plain.bf16@1")
    (violation,) = (each for each in inspection.violations if each.code == "contract-mismatch")
    assert violation.found.startswith(
        "declared: deepseek.fp8-block@1, deepseek.fp8-ue8m0@1, hf.fp8-blockwise@1, "
        "qwen.fp8-blockwise-shared-table@1; bytes: units like .weight"
    )


def test_of_two_contracts_that_are_declared_the_one_of_most_units_is_judged(tmp_path: Path) -> None:
    """A tree of DeepSeek's names, in which one scale is left over, is declared as one of transformers is."""
    tensors: Tree = {"w.weight": ("F8_E4M3", (256, 256)), "w.scale": ("F32", (2, 2)), "x.weight_scale_inv": ("F32", (2, 2))}
    inspection = judge(tmp_path, tensors, fp8_config())
    assert inspection.nearest == "deepseek.fp8-block@1"
    assert_refused(inspection, Fault("scale-orphan", "x.weight_scale_inv"), Fault("layout-mixed"))


def test_of_two_ways_to_declare_a_contract_the_one_that_less_is_wrong_with_is_told(tmp_path: Path) -> None:
    def another(tables: Table) -> None:
        require = [{"key": "quant_method", "equals": "other"}, {"key": "fmt", "equals": "other"}, {"key": "word", "equals": "other"}]
        contract(tables, BLOCKWISE)["declares"].append({"source": "quantization_config", "require": require})

    registry = parse_registry(to_toml(changed(small(), another)))
    folder = write_checkpoint(tmp_path, BODY, config=fp8_config(activation_scheme="static"))
    inspection = inspect(folder, registry=registry)
    assert_refused(inspection, Fault("declaration-mismatch", "config.json: quantization_config: activation_scheme"))
    other = {"quant_method": "other", "fmt": "other", "word": "other"}
    (folder / "config.json").write_text(json.dumps({"quantization_config": other}))
    assert inspect(folder, registry=attrs.evolve(registry, decoded=frozenset({BLOCKWISE}))).contract == BLOCKWISE


@pytest.mark.parametrize("more", [{}, {"a.input_scale": ("F32", ())}])
def test_the_layout_of_a_unit_names_the_scale_of_its_weight(tmp_path: Path, more: Tree) -> None:
    tensors: Tree = {"a.weight": ("F8_E4M3", (512, 256)), "a.weight_scale": ("BF16", (512, 1)), **more}
    inspection = judge(tmp_path, tensors, compressed_tensors_config("channel"))
    assert inspection.nearest == "compressed-tensors.fp8-channel@1"
    ((name, layout),) = inspection.layouts.items()
    assert (name, layout.scale_name, layout.scale_dtype, layout.grid) == ("a.weight", ".weight_scale", "BF16", (512, 1))
    assert (len(layout.sidecars), layout.experts, layout.block, layout.form) == (1 + len(more), 1, None, "matrix")


# Names that a payload's is.


@pytest.mark.parametrize(("dtype", "packed"), [("U8", True), ("I8", False), ("I32", False)])
def test_blocks_are_packed_weights_if_they_are_bytes(tmp_path: Path, dtype: str, packed: bool) -> None:
    tensors: Tree = {"experts.up_blocks": (dtype, (2, 64, 4, 16)), "norm.weight": ("BF16", (64,))}
    inspection = judge(tmp_path, tensors)
    assert inspection.contract is None
    if packed:
        assert {each.object for each in inspection.violations if each.code == "scale-missing"} == {"experts.up_blocks"}
    else:
        assert {each.object for each in inspection.violations if each.code == "tensor-unexplained"} == {"experts.up_blocks"}


# Patterns that no engine takes.


@pytest.mark.parametrize("pattern", ["re:" + "(" * 499 + ")" * 499, "re:a{4294967296}", "re:(?P<a>", "re:" + "a" * 1001])
def test_a_pattern_that_cannot_be_read_is_refused_and_hides_none_after_it(tmp_path: Path, pattern: str) -> None:
    inspection = judge(tmp_path, {**BODY, **bf16("head.weight", 8, 8)}, fp8_config(modules_to_not_convert=[pattern, "re:["]))
    assert_refused(
        inspection,
        Fault("declaration-invalid", f"config.json: quantization_config: {pattern[:80]}"),
        Fault("declaration-invalid", "config.json: quantization_config: re:["),
    )
    assert_accepted(judge(tmp_path, {**BODY, **bf16("head.weight", 8, 8)}, fp8_config(modules_to_not_convert=["re:head"])), BLOCKWISE)


def test_a_list_of_modules_is_never_the_reason_to_take_another_export(tmp_path: Path) -> None:
    """It changes no byte that is read: whoever repairs it needs no other checkpoint."""
    inspection = judge(tmp_path, BODY, fp8_config(modules_to_not_convert=["re:["], ignore={"head": True}))
    assert_refused(
        inspection,
        Fault("declaration-invalid", "config.json: quantization_config: re:["),
        Fault("declaration-invalid", "config.json: quantization_config: ignore"),
    )
    assert {each.remedy for each in inspection.violations} == {
        "Take the configuration from the export that wrote the weights. The list never changes how bytes are read."
    }


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("re:model.*b.*head$", True),
        ("re:model.*b.*hea$", False),
        ("re:.*b.*d$", True),
        ("re:.*head.*b$", False),
        ("re:model.*head", True),
        ("re:head$", False),
        (r"re:model\.a\.b\.head$", True),
        (r"re:model\.a\.b$", False),
    ],
)
def test_a_pattern_ends_where_its_last_part_does(tmp_path: Path, pattern: str, matches: bool) -> None:
    report = judge(tmp_path, {**BODY, **bf16("model.a.b.head.weight", 8, 8)}, fp8_config(modules_to_not_convert=[pattern])).exclusions
    assert (report.matched, report.unmatched, report.not_evaluated) == (int(matches), () if matches else (pattern,), ())


def test_entries_that_the_bytes_contradict_are_listed_from_the_shortest(tmp_path: Path) -> None:
    long = "a.b.c.d.e.f.g.h.i"
    inspection = judge(tmp_path, unit(long, 256, 256), fp8_config(modules_to_not_convert=[long, "i"]))
    assert_accepted(inspection, BLOCKWISE)
    assert inspection.exclusions.contradicted == (("i", f"{long}.weight"), (long, f"{long}.weight"))


# Headers without files.


def header(tensors: Tensors) -> Header:
    return read_header(file_bytes(header_bytes(tensors), bytes(payload_size(tensors))))


def test_tensors_that_stand_in_two_planned_headers_are_named_in_order(tmp_path: Path) -> None:
    names = ("kilo", "alpha", "mike", "delta", "juliet", "bravo", "golf")
    headers = {
        "one": header(bf16("single", 8)),
        "two": header({**bf16("other", 8), **dict.fromkeys(names, ("BF16", (8,)))}),
        "three": header(dict.fromkeys(names, ("BF16", (8,)))),
    }
    with pytest.raises(ValueError, match=r"\Aalpha, bravo, delta, golf, juliet, kilo, mike: in two and in three\Z"):
        inspect_planned(headers, {}, path="planned")
    assert inspect_planned({"one": headers["one"], "two": headers["two"]}, {}, path="planned").contract is not None


def test_what_could_not_be_read_has_no_notes(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    inspection = inspect(tmp_path)
    assert (inspection.notes, inspection.resembles, list(inspection.units), inspection.unit_count) == ((), (), [], 0)

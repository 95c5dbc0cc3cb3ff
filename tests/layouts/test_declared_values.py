"""What a declaration says of values and blocks, where the tree or the type is not what one would think of first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.registry.registry import parse_registry
from tests.support.checkpoint_files import write_checkpoint
from tests.support.registry_texts import Table, changed, contract, small, to_toml
from tests.support.trees import (
    BLOCKWISE,
    Fault,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    compressed_tensors_config,
    fp8_config,
    judge,
    unit,
    why,
)

WHERE = "config.json: quantization_config: "
OTHER_BLOCK = Fault("declaration-mismatch", f"{WHERE}weight_block_size", "[128, 128]", "[64, 64]")
OTHER_GRID = Fault("declaration-contradicts-grid", "b.weight_scale_inv", "grid [4, 2]", "[2, 1]")


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        pytest.param({"a.weight": ("F8_E4M3", (64, 64))}, Fault("scale-missing", "a.weight"), id="no-scale"),
        pytest.param(
            {"a.weight": ("F8_E4M3", (64,)), "a.weight_scale_inv": ("F32", (1,))},
            Fault("weight-rank", "a.weight"),
            id="vector-with-a-scale",
        ),
        pytest.param({"a.weight": ("F8_E4M3", ()), "a.weight_scale_inv": ("F32", ())}, Fault("weight-rank", "a.weight"), id="scalar"),
    ],
)
def test_another_block_is_compared_with_the_units_that_have_a_grid_and_the_others_are_refused_for_what_they_are(
    tensors: Tree, fault: Fault, tmp_path: Path
) -> None:
    inspection = judge(tmp_path, {**tensors, **unit("b", 256, 128)}, fp8_config(weight_block_size=[64, 64]))
    assert_refused(inspection, OTHER_BLOCK, OTHER_GRID, fault)


@pytest.mark.parametrize("value", [True, 8.0, "8", [8]])
def test_a_number_has_its_exact_type(value: Any, tmp_path: Path) -> None:
    tensors: Tree = {"w.weight": ("F8_E4M3", (256, 128)), "w.weight_scale": ("F32", (256, 1))}
    inspection = judge(tmp_path, tensors, compressed_tensors_config("channel", num_bits=value))
    assert any(each.code == "declaration-invalid" and each.object.endswith("num_bits") for each in inspection.violations), why(inspection)


@pytest.mark.parametrize(("value", "code"), [(True, "declaration-invalid"), (2, "declaration-mismatch"), (1, None)])
def test_true_is_not_the_number_1(value: Any, code: str | None, tmp_path: Path) -> None:
    def ask_for_1(tables: Table) -> None:
        contract(tables, BLOCKWISE)["declares"][0]["require"].append({"key": "version", "equals": 1})

    folder = write_checkpoint(tmp_path, unit("w", 256, 128), config=fp8_config(version=value))
    inspection = inspect(folder, registry=parse_registry(to_toml(changed(small(), ask_for_1))))
    if code is None:
        assert inspection.codes == (), why(inspection)
    else:
        assert [(each.code, each.object) for each in inspection.violations] == [(code, f"{WHERE}version")]


def test_a_declaration_of_the_contracts_own_block_is_not_compared_with_anything(tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, unit("b", 256, 128), fp8_config()), BLOCKWISE, 1)


# ------------------------------------------------------------ block FP8: the method with its block, and its names in other vocabularies


BLOCKS = unit("w", 576, 384)


def hf_quant(**keys: Any) -> dict[str, Any]:
    return {"hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": None, **keys}}}


def test_the_method_and_its_block_declare_it_and_an_absent_scheme_is_dynamic(tmp_path: Path) -> None:
    declared = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert_accepted(judge(tmp_path, BLOCKS, {"quantization_config": declared}), BLOCKWISE, 1)
    assert_accepted(judge(tmp_path, BLOCKS, {"quantization_config": {**declared, "activation_scheme": "dynamic"}}), BLOCKWISE, 1)


@pytest.mark.parametrize(
    ("scheme", "code", "found"),
    [("static", "declaration-mismatch", "static"), (None, "declaration-incomplete", "null"), ([], "declaration-invalid", "[]")],
)
def test_any_other_scheme_is_refused_and_so_is_null(scheme: Any, code: str, found: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, BLOCKS, fp8_config(activation_scheme=scheme))
    assert_refused(inspection, Fault(code, f"{WHERE}activation_scheme", "dynamic", found))


@pytest.mark.parametrize("key", ["quant_method", "weight_block_size"])
def test_neither_of_the_two_keys_may_be_absent(key: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, BLOCKS, fp8_config(**{key: ..., "activation_scheme": ...}))
    assert_refused(inspection, Fault("declaration-incomplete", f"{WHERE}{key}"))


@pytest.mark.parametrize(
    ("scale", "scale_fmt", "contract"), [("F32", ..., "deepseek.fp8-block@1"), ("F8_E8M0", "ue8m0", "deepseek.fp8-ue8m0@1")]
)
def test_the_same_default_holds_for_the_other_layouts_of_the_method(scale: str, scale_fmt: Any, contract: str, tmp_path: Path) -> None:
    tree = {"w.weight": ("F8_E4M3", (512, 256)), "w.scale": (scale, (4, 2))}
    assert_named_without_decoder(judge(tmp_path, tree, fp8_config(activation_scheme=..., scale_fmt=scale_fmt)), contract)
    static = judge(tmp_path, tree, fp8_config(activation_scheme="static", scale_fmt=scale_fmt))
    assert_refused(static, Fault("declaration-mismatch", f"{WHERE}activation_scheme", "dynamic", "static"))


@pytest.mark.parametrize("algo", ["FP8_BLOCK_SCALES", "FP8_PB_WO"])
@pytest.mark.parametrize(
    "config", [fp8_config(), fp8_config(activation_scheme=...), {}, None], ids=["both", "both-short", "alone", "no-config"]
)
def test_both_vocabularies_name_the_layout(algo: str, config: dict[str, Any] | None, tmp_path: Path) -> None:
    for further in ({}, {"group_size": 128}, {"exclude_modules": ["lm_head"]}):
        assert_accepted(judge(tmp_path, BLOCKS, config, files=hf_quant(quant_algo=algo, **further)), BLOCKWISE, 1)


@pytest.mark.parametrize("keys", [{"quant_algo": "FP8_BLOCK_SCALES", "group_size": 64}, {"quant_algo": "FP8_PB_WO", "group_size": None}])
def test_another_group_than_the_block_is_a_contradiction(keys: dict[str, Any], tmp_path: Path) -> None:
    inspection = judge(tmp_path, BLOCKS, files=hf_quant(**keys))
    assert inspection.contract is None
    assert [each.object for each in inspection.violations] == ["hf_quant_config.json: quantization: group_size"]


@pytest.mark.parametrize("algo", ["FP8", "NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "W4A16_AWQ", "fp8_block_scales"])
def test_any_other_algorithm_beside_the_method_is_a_conflict(algo: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, BLOCKS, fp8_config(), files=hf_quant(quant_algo=algo))
    assert inspection.contract is None
    assert "declaration-conflict" in inspection.codes


def test_the_name_alone_declares_nothing_of_other_bytes(tmp_path: Path) -> None:
    """`FP8_PB_WO` also names a scale of rank 4; the bytes tell."""
    rank_4 = {"w.weight": ("F8_E4M3", (512, 256)), "w.weight_scale": ("F32", (4, 1, 2, 1))}
    assert judge(tmp_path, rank_4, files=hf_quant(quant_algo="FP8_PB_WO")).contract is None
    assert (
        judge(tmp_path, {**BLOCKS, "w.weight_scale_inv": ("F32", (3, 5))}, files=hf_quant(quant_algo="FP8_BLOCK_SCALES")).contract is None
    )

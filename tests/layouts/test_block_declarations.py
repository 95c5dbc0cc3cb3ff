"""What declares block FP8: the method with its block, and the names that ModelOpt and TensorRT-LLM have for the same layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trees import BLOCKWISE, Fault, assert_accepted, assert_named_without_decoder, assert_refused, fp8_config, judge, unit

TREE = unit("w", 576, 384)
WHERE = "config.json: quantization_config: "


def hf_quant(**keys: Any) -> dict[str, Any]:
    return {"hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": None, **keys}}}


def test_the_method_and_its_block_declare_it_and_an_absent_scheme_is_dynamic(tmp_path: Path) -> None:
    declared = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert_accepted(judge(tmp_path, TREE, {"quantization_config": declared}), BLOCKWISE, 1)
    assert_accepted(judge(tmp_path, TREE, {"quantization_config": {**declared, "activation_scheme": "dynamic"}}), BLOCKWISE, 1)


@pytest.mark.parametrize(
    ("scheme", "code", "found"),
    [("static", "declaration-mismatch", "static"), (None, "declaration-incomplete", "null"), ([], "declaration-invalid", "[]")],
)
def test_any_other_scheme_is_refused_and_so_is_null(scheme: Any, code: str, found: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(activation_scheme=scheme))
    assert_refused(inspection, Fault(code, f"{WHERE}activation_scheme", "dynamic", found))


@pytest.mark.parametrize("key", ["quant_method", "weight_block_size"])
def test_neither_of_the_two_keys_may_be_absent(key: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(**{key: ..., "activation_scheme": ...}))
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
        assert_accepted(judge(tmp_path, TREE, config, files=hf_quant(quant_algo=algo, **further)), BLOCKWISE, 1)


@pytest.mark.parametrize("keys", [{"quant_algo": "FP8_BLOCK_SCALES", "group_size": 64}, {"quant_algo": "FP8_PB_WO", "group_size": None}])
def test_another_group_than_the_block_is_a_contradiction(keys: dict[str, Any], tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, files=hf_quant(**keys))
    assert inspection.contract is None
    assert [each.object for each in inspection.violations] == ["hf_quant_config.json: quantization: group_size"]


@pytest.mark.parametrize("algo", ["FP8", "NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "W4A16_AWQ", "fp8_block_scales"])
def test_any_other_algorithm_beside_the_method_is_a_conflict(algo: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(), files=hf_quant(quant_algo=algo))
    assert inspection.contract is None
    assert "declaration-conflict" in inspection.codes


def test_the_name_alone_declares_nothing_of_other_bytes(tmp_path: Path) -> None:
    """`FP8_PB_WO` also names a scale of rank 4; the bytes tell."""
    rank_4 = {"w.weight": ("F8_E4M3", (512, 256)), "w.weight_scale": ("F32", (4, 1, 2, 1))}
    assert judge(tmp_path, rank_4, files=hf_quant(quant_algo="FP8_PB_WO")).contract is None
    assert judge(tmp_path, {**TREE, "w.weight_scale_inv": ("F32", (3, 5))}, files=hf_quant(quant_algo="FP8_BLOCK_SCALES")).contract is None

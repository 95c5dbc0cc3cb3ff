"""Rowwise FP8 as its producer writes it: declared as ModelOpt's or by nothing, scales F32 or BF16, `[out]` or `[out, 1]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trees import ROWWISE, Fault, Tree, assert_accepted, assert_named_without_decoder, assert_refused, bf16, judge, unit

MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
WHERE = "config.json: quantization_config"


def rows(module: str = "b.0.a", *, dtype: str = "F32", shape: tuple[int, ...] = (48,)) -> Tree:
    return {f"{module}.weight": ("F8_E4M3", (48, 32)), f"{module}.weight_scale": (dtype, shape)}


@pytest.mark.parametrize("config", [None, {"architectures": ["UNet"]}, MODELOPT], ids=["no-config", "undeclared", "modelopt"])
@pytest.mark.parametrize("shape", [(48,), (48, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_every_form_is_accepted_declared_or_not(dtype: str, shape: tuple[int, ...], config: dict[str, Any] | None, tmp_path: Path) -> None:
    tree = {**rows(dtype=dtype, shape=shape), **bf16("norm.weight", 8)}
    assert_accepted(judge(tmp_path, tree, config), ROWWISE, {"b.0.a.weight": shape})


@pytest.mark.parametrize("config", [None, MODELOPT], ids=["undeclared", "modelopt"])
def test_all_forms_may_stand_in_one_tree(config: dict[str, Any] | None, tmp_path: Path) -> None:
    forms = [(dtype, shape) for dtype in ("F32", "BF16") for shape in ((48,), (48, 1))]
    tree = {name: each for number, (dtype, shape) in enumerate(forms) for name, each in rows(str(number), dtype=dtype, shape=shape).items()}
    assert_accepted(judge(tmp_path, tree, config), ROWWISE, 4)


@pytest.mark.parametrize(
    ("scale", "code"),
    [
        (("F16", (48,)), "scale-dtype"),
        (("U8", (48,)), "scale-dtype"),
        (("F32", (1, 48)), "scale-grid-transposed"),
        (("F32", (47,)), "scale-grid"),
        (("F32", (48, 1, 1)), "scale-rank"),
    ],
)
def test_every_other_scale_is_refused(scale: tuple[str, tuple[int, ...]], code: str, tmp_path: Path) -> None:
    tree = {**rows(), "b.0.a.weight_scale": scale}
    other = [Fault("contract-mismatch", found="modelopt.fp8-channel@1")] if scale[0] == "F16" else []
    assert_refused(judge(tmp_path, tree, contract=ROWWISE), Fault(code, "b.0.a.weight_scale"), *other)
    assert judge(tmp_path, tree).contract is None
    assert judge(tmp_path, tree, MODELOPT).contract is None


@pytest.mark.parametrize(
    ("declared", "key", "code"),
    [
        ({"quant_method": "modelopt"}, "quant_algo", "declaration-incomplete"),
        ({"quant_method": "modelopt", "quant_algo": None}, "quant_algo", "declaration-incomplete"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "quant_algo", "declaration-mismatch"),
        ({"quant_method": "modelopt", "quant_algo": ["FP8"]}, "quant_algo", "declaration-invalid"),
        ({"quant_algo": "FP8"}, "quant_method", "declaration-incomplete"),
    ],
)
def test_it_is_declared_by_exactly_this_or_by_nothing(declared: dict[str, Any], key: str, code: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, rows(), {"quantization_config": declared}, contract=ROWWISE)
    assert inspection.contract is None
    assert (code, f"{WHERE}: {key}") in [(each.code, each.object) for each in inspection.violations]
    assert judge(tmp_path, rows(), {"quantization_config": declared}).contract is None


def test_a_second_file_of_declarations_is_not_its_own(tmp_path: Path) -> None:
    files = {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}
    assert judge(tmp_path, rows(), files=files).contract is None
    assert judge(tmp_path, rows(), MODELOPT, files=files).contract is None


def test_the_same_declaration_with_a_scale_for_the_tensor_is_modelopts(tmp_path: Path) -> None:
    tree: Tree = {**rows(shape=()), "b.0.a.input_scale": ("F32", ())}
    assert_named_without_decoder(judge(tmp_path, tree, MODELOPT), "modelopt.fp8-tensor@1")
    asked = judge(tmp_path, {**rows(), "b.0.a.input_scale": ("F32", ())}, MODELOPT)
    assert asked.contract is None
    assert judge(tmp_path, rows(), {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}).nearest == ROWWISE


def test_one_unit_of_another_layout_spoils_it(tmp_path: Path) -> None:
    assert judge(tmp_path, {**rows(), **unit("c", 256, 128)}, MODELOPT).contract is None
    assert judge(tmp_path, {**rows(), "c.weight": ("F8_E4M3", (16, 16))}, MODELOPT).contract is None


FLAT: Tree = {"w.weight": ("U8", (48, 32)), "w.weight_scale": ("F8_E4M3", (48, 4)), "w.weight_scale_2": ("F32", (1, 1))}
NVFP4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}


@pytest.mark.parametrize("config", [None, NVFP4], ids=["undeclared", "modelopt"])
def test_the_flat_nvfp4_is_declared_in_the_same_two_ways(config: dict[str, Any] | None, tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, FLAT, config), "cozy.nvfp4-flat@1")


def test_flat_nvfp4_is_told_from_modelopts_by_the_rank_of_its_global_scale(tmp_path: Path) -> None:
    modelopt: Tree = {**FLAT, "w.weight_scale_2": ("F32", ())}
    assert_named_without_decoder(judge(tmp_path, modelopt, NVFP4), "modelopt.nvfp4@1")
    assert judge(tmp_path, FLAT, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}).contract is None
    both = {**{f"a.{name}": each for name, each in FLAT.items()}, **{f"b.{name}": each for name, each in modelopt.items()}}
    assert_refused_in_every_way(both, tmp_path)


def assert_refused_in_every_way(tree: Tree, tmp_path: Path) -> None:
    for config in (None, NVFP4):
        inspection = judge(tmp_path, tree, config)
        assert inspection.contract is None
        assert "contract-without-decoder" not in inspection.codes

"""Which contract a refused tree is judged against and said to look like: what a user reads first, so it is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trees import BLOCKWISE, ROWWISE, Fault, Tree, assert_refused, fp8_config, judge, unit, why

FP8 = fp8_config()


@pytest.mark.parametrize("sidecar", ["weight_scale_inv", "scale"])
def test_a_scale_of_a_foreign_name_weighs_as_much_as_one_of_another_grid_and_dtype(sidecar: str, tmp_path: Path) -> None:
    """Two contracts are declared alike and differ in the name of the scale: with U8 exponents they tie, and the first one counts."""
    tensors: Tree = {"w.weight": ("F8_E5M2", (576, 384)), f"w.{sidecar}": ("U8", (576, 12))}
    inspection = judge(tmp_path, tensors, FP8)
    assert inspection.contract is None
    assert inspection.nearest == BLOCKWISE, why(inspection)


@pytest.mark.parametrize("sidecar", ["scale", "weight_scale_inv", "qscale_weight"])
def test_bytes_with_a_scale_that_no_layout_has_beside_bytes_are_nearest_to_none(sidecar: str, tmp_path: Path) -> None:
    """A likeness of shapes would name a contract that the tree never was in."""
    tensors: Tree = {"w.weight": ("U8", (576, 192)), f"w.{sidecar}": ("F32", ()), "w.weight_scale_2": ("F32", ())}
    inspection = judge(tmp_path, tensors)
    assert inspection.contract is None
    assert inspection.nearest is None, why(inspection)
    assert inspection.codes == ("layout-undescribed",), why(inspection)
    declared = judge(tmp_path, tensors, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})
    assert declared.nearest == "modelopt.nvfp4@1", why(declared)


def test_a_unit_without_a_scale_makes_no_tree_look_like_the_contract_without_scales(tmp_path: Path) -> None:
    """Storage is a layout of a whole tree: beside units with scales, one without is damaged and nothing else."""
    inspection = judge(tmp_path, {**unit("a", 256, 128), "b.weight": ("F8_E4M3", (64, 64))}, FP8)
    assert_refused(inspection, Fault("scale-missing", "b.weight"))
    assert inspection.resembles == (BLOCKWISE,)


def test_of_two_forms_that_differ_alike_the_first_is_named_and_of_others_the_closer_one(tmp_path: Path) -> None:
    """A weight of rank 4 is neither a matrix nor a stack; a bare parameter is no matrix by its name as well."""
    for name, expected in (("a.weight", "[out, in]"), ("a", "[experts, out, in]")):
        inspection = judge(tmp_path, {**unit("b", 128, 128), name: ("F8_E4M3", (2, 2, 64, 32))}, FP8)
        assert_refused(inspection, Fault("weight-rank", name, found="[2, 2, 64, 32]"), Fault("scale-missing", name))
        (rank,) = (each for each in inspection.violations if each.code == "weight-rank")
        assert rank.expected == expected


def test_what_most_units_look_like_is_named_first(tmp_path: Path) -> None:
    """The contract of two units comes before that of one, wherever the registry has them."""
    rowwise: Tree = {}
    for name in ("b", "c"):
        rowwise |= {f"{name}.weight": ("F8_E4M3", (48, 256)), f"{name}.weight_scale": ("F32", (48,))}
    most_rows = judge(tmp_path / "rows", {**unit("a", 256, 256), **rowwise}, {})
    assert most_rows.resembles.index(ROWWISE) < most_rows.resembles.index(BLOCKWISE)
    most_blocks = judge(tmp_path / "blocks", {**unit("a", 256, 256), **unit("d", 256, 256), **unit("e", 384, 256), **rowwise}, {})
    assert most_blocks.resembles.index(BLOCKWISE) < most_blocks.resembles.index(ROWWISE)


def test_one_tensor_of_another_dtype_among_values_without_scales_is_named_alone(tmp_path: Path) -> None:
    """A raw-cast file with one E5M2 tensor is no block FP8 that lost every scale."""
    tensors: Tree = {f"blocks.{number}.weight": ("F8_E4M3", (64, 32)) for number in range(9)}
    inspection = judge(tmp_path, {**tensors, "odd.weight": ("F8_E5M2", (64, 32))})
    assert_refused(inspection, Fault("weight-dtype", "odd.weight", "F8_E4M3", "F8_E5M2"))
    assert inspection.nearest == "cozy.fp8-storage@1"

"""Llama-4-Scout in ModelOpt's NVFP4: experts stacked under bare names, packed along their inputs, beside 2-D projections."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trees import Fault, Tree, assert_accepted, assert_named_without_decoder, assert_refused, bf16, judge, noted

MODELOPT = "modelopt.nvfp4@1"
FILES = {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8"}}}
EXPERTS = "language_model.model.layers.0.feed_forward.experts"


def stack(name: str, experts: int, inner: int, out: int, scalar: tuple[int, ...] = ()) -> Tree:
    return {
        name: ("U8", (experts, inner // 2, out)),
        f"{name}_weight_scale": ("F8_E4M3", (experts, inner // 16, out)),
        f"{name}_weight_scale_2": ("F32", scalar),
        f"{name}_input_scale": ("F32", scalar),
    }


def projection(module: str, out: int, inner: int) -> Tree:
    return {
        f"{module}.weight": ("U8", (out, inner // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (out, inner // 16)),
        f"{module}.weight_scale_2": ("F32", ()),
        f"{module}.input_scale": ("F32", ()),
    }


SCOUT: Tree = {
    **stack(f"{EXPERTS}.gate_up_proj", 16, 5120, 16384),
    **stack(f"{EXPERTS}.down_proj", 16, 8192, 5120),
    **projection("language_model.model.layers.0.self_attn.q_proj", 5120, 5120),
    "language_model.model.layers.0.self_attn.k_scale": ("F32", (1,)),
    **bf16("language_model.model.layers.0.feed_forward.router.weight", 16, 5120),
}


def test_the_release_in_its_own_shapes(tmp_path: Path) -> None:
    assert SCOUT[f"{EXPERTS}.gate_up_proj"] == ("U8", (16, 2560, 16384))
    assert SCOUT[f"{EXPERTS}.gate_up_proj_weight_scale"] == ("F8_E4M3", (16, 320, 16384))
    inspection = judge(tmp_path, SCOUT, files=FILES)
    assert_named_without_decoder(inspection, MODELOPT)
    assert inspection.unit_count == 3
    assert len(inspection.sidecars) == 9
    assert inspection.unit_tensors[f"{EXPERTS}.down_proj"]["global_scale"] == f"{EXPERTS}.down_proj_weight_scale_2"
    assert noted(inspection, "1 key or value cache scale")
    assert inspection.layouts[f"{EXPERTS}.down_proj"].experts == 16


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_sidecars_may_lie_in_other_shards(shards: int, tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, SCOUT, files=FILES, shards=shards), MODELOPT)


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_a_scalar_has_rank_0_or_1(shape: tuple[int, ...], tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, stack("e.up", 2, 64, 48, shape), files=FILES), MODELOPT)


@pytest.mark.parametrize(
    ("name", "geometry", "fault"),
    [
        ("e.up_weight_scale", ("F8_E4M3", (2, 48, 4)), "scale-grid-transposed"),
        ("e.up_weight_scale", ("F8_E4M3", (3, 4, 48)), "scale-grid"),
        ("e.up_weight_scale", ("F8_E4M3", (4, 48)), "scale-rank"),
        ("e.up_weight_scale", ("U8", (2, 4, 48)), "scale-dtype"),
        ("e.up_weight_scale_2", ("F32", (2,)), "scale-grid"),
        ("e.up_weight_scale_2", ("BF16", ()), "scale-dtype"),
        ("e.up_input_scale", ("F32", (2,)), "scale-grid"),
    ],
)
def test_a_sidecar_that_differs_is_named(name: str, geometry: tuple[str, tuple[int, ...]], fault: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**stack("e.up", 2, 64, 48), name: geometry}, files=FILES)
    assert inspection.contract is None
    assert [each for each in inspection.violations if (each.code, each.object) in {(fault, name), ("scale-rank", name)}]
    assert "contract-without-decoder" not in inspection.codes


@pytest.mark.parametrize("missing", ["e.up_weight_scale", "e.up_weight_scale_2"])
def test_a_sidecar_that_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    tree = {name: each for name, each in {**stack("e.up", 2, 64, 48), **projection("w", 64, 64)}.items() if name != missing}
    inspection = judge(tmp_path, tree, files=FILES)
    (fault,) = (each for each in inspection.violations if each.code != "layout-mixed")
    assert (fault.code, fault.object) == ("scale-missing", "e.up")


def test_a_stack_that_is_missing_leaves_orphans_that_name_it(tmp_path: Path) -> None:
    tree = {name: each for name, each in {**stack("e.up", 2, 64, 48), **projection("w", 64, 64)}.items() if name != "e.up"}
    inspection = judge(tmp_path, tree, files=FILES)
    orphans = {each.object: each.expected for each in inspection.violations if each.code == "scale-orphan"}
    assert set(orphans) == {"e.up_weight_scale", "e.up_weight_scale_2"}
    assert "e.up" in orphans["e.up_weight_scale"].split()


def test_the_other_packing_is_not_this_one(tmp_path: Path) -> None:
    """Packed along the last dimension: the same tensors, other numbers."""
    tree = {**stack("e.up", 2, 64, 48), "e.up": ("U8", (2, 48, 32)), "e.up_weight_scale": ("F8_E4M3", (2, 48, 4))}
    inspection = judge(tmp_path, tree, files=FILES)
    assert inspection.contract is None
    assert "contract-without-decoder" not in inspection.codes


def test_torchaos_names_mean_torchaos_layout(tmp_path: Path) -> None:
    tree: Tree = {"w_weight_qdata": ("F8_E4M3", (64, 32)), "w_weight_scale": ("F32", (64, 1))}
    config = {"quantization_config": {"quant_method": "torchao"}}
    assert_named_without_decoder(judge(tmp_path, tree, config), "torchao.fp8-rowwise@1")
    orphan = judge(tmp_path, {**tree, "v_weight_scale": ("F32", (64, 1))}, config)
    assert_refused(orphan, Fault("scale-orphan", "v_weight_scale", ("v_weight_qdata", "or v")))
    two = judge(tmp_path, {**tree, "w": ("F8_E4M3", (64, 32))}, config)
    assert two.contract is None


@pytest.mark.parametrize("name", ["w_input_scale", "blocks.0.attn_input_scale"])
def test_an_ordinary_parameter_of_that_name_stays_one(name: str, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, {**bf16("w.weight", 8, 8), **bf16(name, 8)}), "plain.bf16@1", 0)

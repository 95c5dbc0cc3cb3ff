"""Scales of the key and value cache are left alone, with a note; what bears their name and cannot be one is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trees import (
    BLOCKWISE,
    Fault,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    fp8_config,
    judge,
    noted,
    unit,
)

STORAGE = "cozy.fp8-storage@1"
TREES: dict[str, tuple[Tree, dict[str, Any] | None, str]] = {
    "plain": (bf16("w.weight", 64, 64), None, "plain.bf16@1"),
    "blockwise": (unit("w", 256, 128), fp8_config(), BLOCKWISE),
    "storage": ({"w.weight": ("F8_E4M3", (64, 64))}, None, STORAGE),
    "rowwise": ({"w.weight": ("F8_E4M3", (64, 64)), "w.weight_scale": ("F32", (64,))}, None, "cozy.fp8-rowwise@1"),
}
NAMES = ("layers.0.self_attn.k_scale", "layers.0.self_attn.v_scale", "k_scale", "layers.0.attention.k_fake_quantizer.qscale_act")


@pytest.mark.parametrize("shape", [(), (1,), (8,), (1024,)], ids=str)
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("kind", TREES)
def test_one_number_or_one_for_each_head_is_left_alone(kind: str, dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    tree, config, contract = TREES[kind]
    inspection = judge(tmp_path, {**tree, **dict.fromkeys(NAMES, (dtype, shape))}, config)
    assert_accepted(inspection, contract)
    assert noted(inspection, "4 key or value cache scales", "left alone")


@pytest.mark.parametrize(
    "geometry",
    [
        ("F8_E4M3", (4096, 256)), ("F8_E4M3", ()), ("F8_E5M2", (8,)), ("F8_E8M0", (1,)), ("U8", ()), ("I32", (1,)), ("BOOL", ()),
        ("F64", ()), ("BF16", (1, 1)), ("F32", (8, 1)), ("BF16", (4096, 256)), ("F32", (1025,)), ("F32", (0,)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", TREES)
def test_anything_else_of_such_a_name_is_refused_by_name(kind: str, geometry: tuple[str, tuple[int, ...]], tmp_path: Path) -> None:
    tree, config, _ = TREES[kind]
    found = f"{geometry[0]} {list(geometry[1])}"
    for name in NAMES:
        inspection = judge(tmp_path, {**tree, name: geometry}, config)
        assert_refused(inspection, Fault("cache-scale-invalid", name, "at most 1,024", found))


@pytest.mark.parametrize("further", [{}, {"position_ids": ("I64", (1, 77))}, {"layers.1.v_scale": ("BF16", (8,))}])
@pytest.mark.parametrize("geometry", [("F32", ()), ("BF16", (8,)), ("U8", (4, 4)), ("F8_E4M3", ())], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_tree_of_cache_scales_alone_is_in_no_contract(
    name: str, geometry: tuple[str, tuple[int, ...]], further: Tree, tmp_path: Path
) -> None:
    assert "layout-unknown" in judge(tmp_path, {name: geometry, **further}).codes


MINISTRAL: Tree = {
    f"layers.0.attention.w{each}.{leaf}": entry
    for each in "qkvo"
    for leaf, entry in {"weight": ("F8_E4M3", (4096, 3072)), "qscale_weight": ("BF16", ()), "qscale_act": ("BF16", ())}.items()
}
FAKE: Tree = {f"layers.0.attention.{each}_fake_quantizer.qscale_act": ("BF16", ()) for each in "qkv"}
PARAMS = {"params.json": {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}}


def test_ministrals_fake_quantizers_stand_alone(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**MINISTRAL, **FAKE}, files=PARAMS)
    assert_named_without_decoder(inspection, "mistral.fp8-tensor@1")
    assert inspection.unit_count == 4
    assert inspection.groups is not None
    assert sorted(inspection.groups.cache_scales) == sorted(FAKE)


@pytest.mark.parametrize("module", ["k_fake_quantizer_2", "x_fake_quantizer", "k_fake_quantizer.inner", "wk_proj"])
def test_an_activation_scale_without_a_weight_is_an_orphan_anywhere_else(module: str, tmp_path: Path) -> None:
    name = f"layers.0.attention.{module}.qscale_act"
    inspection = judge(tmp_path, {**MINISTRAL, name: ("BF16", ())}, files=PARAMS)
    assert_refused(inspection, Fault("scale-orphan", name))


def test_a_weight_of_that_name_has_its_activation_scale_itself(tmp_path: Path) -> None:
    module = "layers.0.attention.k_fake_quantizer"
    tree: Tree = {**MINISTRAL, f"{module}.weight": ("F8_E4M3", (16, 16)), f"{module}.qscale_act": ("BF16", ())}
    assert_refused(judge(tmp_path, tree, files=PARAMS), Fault("scale-missing", f"{module}.weight"))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_cache_scale_beside_a_weight_of_its_modules_name_is_no_sidecar_in_one_shard_or_two(shards: int, tmp_path: Path) -> None:
    """The same tensors in one file and in two: `e.gate_up` is a stack, and `e.gate_up.k_scale` a scale of the cache."""
    tree: Tree = {"e.gate_up": ("F8_E4M3", (2, 128, 128)), "e.gate_up_scale_inv": ("F32", (2, 1, 1)), "e.gate_up.k_scale": ("F32", ())}
    placement = {"e.gate_up": 1, "e.gate_up_scale_inv": 1, "e.gate_up.k_scale": shards}
    assert_accepted(judge(tmp_path, tree, fp8_config(), shards=shards, placement=placement), BLOCKWISE, 1)

"""NVFP4 in swizzled tiles: a grid that is padded proves it, and without one nothing but a declaration or notes does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts.registry.shape_patterns import bind, expand, parse_dimension, parse_shape
from tests.support.trees import (
    Fault,
    Tree,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    ceil_div,
    comfy_metadata,
    judge,
    why,
)

SWIZZLED, NOTED, MODELOPT, BFL = "comfy.nvfp4-swizzled@1", "comfy.nvfp4-noted@1", "modelopt.nvfp4@1", "bfl.nvfp4-preswizzled@1"
DECLARED = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}


def padded(out: int, inner: int) -> tuple[int, int]:
    return (ceil_div(out, 128) * 128, ceil_div(ceil_div(inner, 16), 4) * 4)


def unit(module: str, out: int, inner: int, grid: tuple[int, ...] | None = None, *, static: bool = False, note: bool = False) -> Tree:
    return {
        f"{module}.weight": ("U8", (out, inner // 2)),
        f"{module}.weight_scale": ("F8_E4M3", padded(out, inner) if grid is None else grid),
        f"{module}.weight_scale_2": ("F32", ()),
        **({f"{module}.input_scale": ("F32", ())} if static else {}),
        **({f"{module}.comfy_quant": ("U8", (19,))} if note else {}),
    }


LTX: Tree = {
    **unit("transformer_blocks.0.attn1.to_q", 4096, 4096, static=True),
    **unit("proj_out", 64, 4096, static=True),
    **bf16("norm.weight", 4096),
}


def test_ltx_in_its_own_shapes(tmp_path: Path) -> None:
    assert LTX["transformer_blocks.0.attn1.to_q.weight_scale"] == ("F8_E4M3", (4096, 256))
    assert LTX["proj_out.weight_scale"] == ("F8_E4M3", (128, 256))
    inspection = judge(tmp_path, LTX)
    assert_named_without_decoder(inspection, SWIZZLED)
    assert inspection.unit_count == 2
    assert inspection.resembles == (SWIZZLED,)


@pytest.mark.parametrize(("out", "inner"), [(64, 4096), (128, 32), (1, 2), (129, 64), (4095, 4096), (128, 16), (256, 1040)])
def test_one_padded_grid_is_proof(out: int, inner: int, tmp_path: Path) -> None:
    assert padded(out, inner) != (out, ceil_div(inner, 16))
    assert_named_without_decoder(judge(tmp_path, {**unit("a", 256, 256), **unit("b", out, inner)}), SWIZZLED)
    declared = judge(tmp_path, {**unit("a", 256, 256), **unit("b", out, inner)}, DECLARED)
    assert declared.contract is None
    assert "contract-without-decoder" not in declared.codes
    asked = judge(tmp_path, {**unit("a", 256, 256), **unit("b", out, inner)}, contract=MODELOPT)
    assert asked.contract is None
    assert "contract-without-decoder" not in asked.codes


@pytest.mark.parametrize("contract", [None, SWIZZLED, MODELOPT])
def test_without_a_padded_grid_both_are_named_and_no_configuration_is_asked_for(contract: str | None, tmp_path: Path) -> None:
    tree = {**unit("a", 256, 256), **unit("b", 128, 64, static=True)}
    inspection = judge(tmp_path, tree, contract=contract)
    assert_refused(inspection, Fault("layout-ambiguous", expected="by the producer", found=(MODELOPT, SWIZZLED)))
    assert "Add the configuration" not in str(inspection.violations)
    assert set(inspection.resembles) == {MODELOPT, SWIZZLED}


def test_modelopts_declaration_still_means_modelopts_layout(tmp_path: Path) -> None:
    tree = {**unit("a", 256, 256), **unit("b", 128, 64)}
    assert_named_without_decoder(judge(tmp_path, tree, DECLARED), MODELOPT)
    odd = unit("b", 64, 4096, (64, 256))
    assert_named_without_decoder(judge(tmp_path, odd, DECLARED), MODELOPT)
    undeclared = judge(tmp_path, odd)
    assert undeclared.contract is None
    assert SWIZZLED not in undeclared.resembles


@pytest.mark.parametrize("tree", [unit("a", 256, 256), unit("a", 64, 4096)], ids=["whole", "padded"])
def test_the_headers_metadata_declares_it(tree: Tree, tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, tree, metadata=comfy_metadata("nvfp4", "a")), SWIZZLED)
    assert judge(tmp_path, tree, metadata=comfy_metadata("float8_e4m3fn", "a")).contract is None
    assert "declared-module-missing" in judge(tmp_path, tree, metadata=comfy_metadata("nvfp4", "a", "b")).codes
    both = judge(tmp_path, tree, DECLARED, metadata=comfy_metadata("nvfp4", "a"))
    assert "declaration-conflict" in both.codes


@pytest.mark.parametrize("metadata", [None, comfy_metadata("nvfp4", "a", "b")], ids=["notes", "both"])
@pytest.mark.parametrize("shape", [(256, 256), (64, 4096)], ids=["whole", "padded"])
def test_notes_say_that_it_is_comfyuis(shape: tuple[int, int], metadata: dict[str, str] | None, tmp_path: Path) -> None:
    tree = {**unit("a", *shape, note=True), **unit("b", *shape, note=True, static=True)}
    assert_named_without_decoder(judge(tmp_path, tree, metadata=metadata), NOTED)


@pytest.mark.parametrize("shape", [(256, 256), (64, 4096)], ids=["whole", "padded"])
def test_every_weight_has_a_note_or_none_has(shape: tuple[int, int], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**unit("a", *shape, note=True), **unit("b", *shape)})
    assert inspection.contract is None
    assert "contract-without-decoder" not in inspection.codes


@pytest.mark.parametrize("grid", [(64, 256), (128, 255), (128, 260), (256, 256), (256, 128), (128 * 256,)], ids=str)
def test_another_grid_in_a_padded_tree_is_refused(grid: tuple[int, ...], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**unit("a", 64, 4096), **unit("b", 64, 4096, grid)})
    assert inspection.contract is None
    assert "contract-without-decoder" not in inspection.codes
    assert "Add the configuration" not in str(inspection.violations), why(inspection)


# ------------------------------------------------------------ Black Forest Labs: the same tiles in one dimension


def flat(length: int, out: int = 64, inner: int = 4096) -> Tree:
    return {"a.weight": ("U8", (out, inner // 2)), "a.weight_scale": ("F8_E4M3", (length,)), "a.weight_scale_2": ("F32", (1, 1))}


@pytest.mark.parametrize(("out", "inner"), [(64, 4096), (256, 256), (1, 2), (129, 1040)])
def test_the_flat_tiles_fill_the_padded_grid(out: int, inner: int, tmp_path: Path) -> None:
    rows, columns = padded(out, inner)
    assert_named_without_decoder(judge(tmp_path, flat(rows * columns, out, inner)), BFL)
    for length in {1, rows * columns - 1, rows * columns + 1, out * ceil_div(inner, 16), 2 * rows * columns} - {rows * columns}:
        inspection = judge(tmp_path, flat(length, out, inner), contract=BFL)
        assert [each.code for each in inspection.violations if each.object == "a.weight_scale"] == ["scale-grid"], why(inspection)
        assert judge(tmp_path, flat(length, out, inner)).contract is None


# ------------------------------------------------------------ the notation


@pytest.mark.parametrize(
    ("text", "out", "inner", "size"),
    [
        ("out^128", 64, 1, 128), ("out^128", 128, 1, 128), ("out^128", 129, 1, 256), ("in/16^4", 1, 4096, 256), ("in/16^4", 1, 4097, 260),
        ("in/16^4", 1, 1, 4), ("out^128*in/16^4", 64, 4096, 128 * 256), ("out*in", 3, 5, 15), ("in/2*out*in^8", 3, 5, 3 * 3 * 8),
    ],
)  # fmt: skip
def test_sizes_are_rounded_up_and_multiplied(text: str, out: int, inner: int, size: int) -> None:
    assert expand(parse_shape((text,)), {"out": out, "in": inner}, (1,)) == (size,)
    assert str(parse_dimension(text)) == text


@pytest.mark.parametrize(
    "text", ["out^", "out^0", "^4", "out^4/16", "out*", "*in", "out**in", "out^4^4", "out*4", "out^-4", "Out^4", "out ^4"]
)
def test_what_is_not_the_notation_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="a dimension is"):
        parse_dimension(text)


def test_a_symbol_that_nothing_binds_takes_what_is_there_and_never_nothing() -> None:
    assert expand(parse_shape(("note",)), {}, (57,)) == (57,)
    assert expand(parse_shape(("note",)), {}, (0,)) == (1,)
    assert bind(parse_shape(("out", "in/2")), (3, 4)) == {"out": 3, "in": 8}

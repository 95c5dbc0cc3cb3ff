"""Sound files in layouts that no contract describes: said as what they are, first and alone, and with no remedy that would harm them.

The trees are reductions of public reports and releases: names, dtypes, shapes and declarations as their producers write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts.refusal_codes import explanations
from tests.support.trees import BLOCKWISE, Tree, bf16, judge, unit, why


def declared(method: str, **keys: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **keys}}


def compressed(**weights: Any) -> dict[str, Any]:
    layout = weights.pop("format")
    return declared("compressed-tensors", format=layout, config_groups={"group_0": {"weights": weights, "targets": ["Linear"]}})


INT4: Tree = {
    "layers.0.up.weight_packed": ("I32", (2048, 896)),
    "layers.0.up.weight_scale": ("BF16", (2048, 224)),
    "layers.0.up.weight_shape": ("I64", (2,)),
}
CASES: dict[str, tuple[Tree, dict[str, Any], str]] = {
    "compressed-tensors MXFP4": (
        {"a.weight_packed": ("U8", (512, 256)), "a.weight_scale": ("U8", (512, 16))},
        compressed(format="mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32),
        "mxfp4-pack-quantized",
    ),
    "Quark MXFP4": (
        {"a.weight": ("U8", (512, 256)), "a.weight_scale": ("U8", (512, 16))},
        declared("quark", export={"pack_method": "order"}),
        "Quark",
    ),
    "Kimi-K2, INT4 below text_config": (
        INT4,
        {"text_config": compressed(format="pack-quantized", num_bits=4, type="int", strategy="group", group_size=32)},
        "pack-quantized",
    ),
    "W4A16": (INT4, compressed(format="pack-quantized", num_bits=4, type="int", strategy="group", group_size=128), "pack-quantized"),
    "W8A16": (
        {"a.weight": ("I8", (512, 512)), "a.weight_scale": ("BF16", (512, 4))},
        compressed(format="int-quantized", num_bits=8, type="int", strategy="group", group_size=128),
        "int-quantized",
    ),
    "ModelOpt MXFP8": (
        {"a.weight": ("F8_E4M3", (512, 512)), "a.weight_scale": ("U8", (512, 16))},
        declared("modelopt", quant_algo="MXFP8"),
        "MXFP8",
    ),
    "DeepSeek, blocks of 32 x 32": (
        {"layers.0.attn.wq_a.weight": ("F8_E4M3", (512, 512)), "layers.0.attn.wq_a.scale": ("F8_E8M0", (16, 16))},
        declared("fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[32, 32], scale_fmt="ue8m0"),
        "[32, 32]",
    ),
    "torchao INT8": (
        {"a_weight_qdata": ("I8", (512, 512)), "a_weight_scale": ("F32", (512, 1))},
        declared("torchao", quant_type={"default": {"_type": "Int8WeightOnlyConfig"}}),
        "torchao",
    ),
    "a method of its own": (unit("a", 256, 256), declared("acme-fp8"), "acme-fp8"),
    "HIGGS": ({"a.weight": ("U8", (512, 256)), "a.tables": ("F16", (16, 2))}, declared("higgs", bits=4), "HIGGS"),
}

#: What nobody may be told to do to a file that may be sound.
HARMFUL = ("Rename", "rename", "remove", "Remove", "Restore", "Add the", "Cast", "Correct the", "Edit", "edit ", "Leave the")


@pytest.mark.parametrize(("tree", "config", "said"), CASES.values(), ids=CASES)
def test_a_declared_layout_that_no_contract_has_is_said_alone(tree: Tree, config: dict[str, Any], said: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**tree, **bf16("norm.weight", 512)}, config)
    assert inspection.contract is None
    if said == "torchao":
        assert set(inspection.codes) <= {"declaration-unknown", "layout-undescribed", "weight-dtype"}, why(inspection)
    else:
        assert inspection.codes == ("declaration-unknown",), why(inspection)
        assert inspection.nearest is None
        (violation,) = inspection.violations
        assert said in violation.found
        assert next(iter(tree)) in violation.found, "what its tensors look like"
    assert not [word for word in HARMFUL if word in " ".join(each.remedy for each in inspection.violations)]


def test_integers_with_a_scale_of_a_known_name_are_named_by_what_marks_them(tmp_path: Path) -> None:
    tree: Tree = {"a.weight": ("I8", (512, 512)), "a.weight_scale": ("F32", (512, 1)), "a.comfy_quant": ("U8", (40,))}
    inspection = judge(tmp_path, tree)
    assert inspection.codes == ("layout-undescribed",), why(inspection)
    assert "ComfyUI INT8" in inspection.violations[0].found
    assert inspection.nearest is None


PARTS: Tree = {
    "model.layers.0.self_attn.q_proj.weight": ("F8_E4M3", (256, 256)),
    "model.layers.0.self_attn.q_proj.weight_scale": ("F32", ()),
    "model.layers.0.self_attn.q_proj.input_scale": ("F32", ()),
    "model.experts.0.up_proj.weight": ("U8", (256, 128)),
    "model.experts.0.up_proj.weight_scale": ("F8_E4M3", (256, 16)),
    "model.experts.0.up_proj.weight_scale_2": ("F32", ()),
    "model.experts.0.up_proj.input_scale": ("F32", ()),
}
MIXED = {
    "quantization": {
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
            "model.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        },
    }
}


def test_mixed_precision_is_one_short_table_of_parts(tmp_path: Path) -> None:
    """Each part in the contract that its declaration names, and not a word on how the one differs from the other."""
    inspection = judge(tmp_path, PARTS, files={"hf_quant_config.json": MIXED})
    (mixed,) = inspection.violations
    assert mixed.code == "layout-mixed"
    assert inspection.nearest is None
    assert "MIXED_PRECISION" in mixed.expected
    rows = dict(row.split(": ", 1) for row in mixed.found.split("; "))
    assert rows["model.layers"].endswith("(modelopt.fp8-tensor@1)")
    assert rows["model.experts"].endswith("(modelopt.nvfp4@1)")


def test_a_damaged_tree_of_a_known_declaration_is_judged_as_ever(tmp_path: Path) -> None:
    """The control: what is declared is known, so that what differs from it is a fault."""
    tree = {**unit("a", 256, 256), "b.weight": ("F8_E4M3", (256, 384)), "b.weight_scale_inv": ("F32", (3, 2))}
    inspection = judge(tmp_path, tree, declared("fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128]))
    assert inspection.codes == ("scale-grid-transposed",), why(inspection)
    assert inspection.nearest == BLOCKWISE


def test_no_code_has_a_remedy_that_changes_a_file_that_may_be_sound() -> None:
    judged = {code: each for code, each in explanations().items() if each.group in ("declaration", "layout", "unit")}
    assert len(judged) > 30
    assert not {code: each.remedy for code, each in judged.items() if any(word in each.remedy for word in HARMFUL)}

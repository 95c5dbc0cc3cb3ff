"""Block-FP8 checkpoints that failed, or were silently wrong, in public reports: group 1, and the rows of group 6 about layouts.

Each test bears the id of its row. Rows about decoding, slicing and loading are tested where those are; of them only what an
inspection can show stands here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from tensorhub_decoders.hf_fp8_blockwise import inspect_hf_fp8_blockwise

from tensorhub_contracts import Refusal, inspect
from tests.support.checkpoint_files import Tensors, shard_name, write_sparse
from tests.support.trees import (
    BLOCKWISE,
    ROWWISE,
    TREE,
    Fault,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    blocks,
    compressed_tensors_config,
    fp8_config,
    fp8_declaration,
    judge,
    noted,
    stacked_unit,
    unit,
    why,
)

FP8 = fp8_config()

#: Nothing is declared, and the bytes look like a contract: two violations, and the second one says which.
DECLARATION_MISSING = Fault("declaration-missing", "quantization_config", found="none")


def undeclared(contract: str, *found: str) -> Fault:
    return Fault("layout-undeclared", TREE, found=(contract, *found), resembles=contract)


def test_b1_01_a_scale_is_a_sidecar_and_never_a_unit(tmp_path: Path) -> None:
    tensors: Tensors = {
        "layers.0.mlp.down_proj.weight": ("F8_E4M3", (7168, 18432)),
        "layers.0.mlp.down_proj.weight_scale_inv": ("F32", (56, 144)),
    }
    inspection = judge(tmp_path, tensors, FP8)
    assert_accepted(inspection, BLOCKWISE, {"layers.0.mlp.down_proj.weight": (56, 144)})
    assert inspection.resembles == (BLOCKWISE,)
    assert any("1 weight" in line for line in inspection.proved)


PER_TENSOR_STATIC: Tensors = {
    "mixer.in_proj.weight": ("F8_E4M3", (1024, 512)),
    "mixer.in_proj.weight_scale": ("F32", ()),
    "mixer.in_proj.input_scale": ("F32", ()),
}


def test_b1_02_per_tensor_scale_and_static_activations_are_both_named(tmp_path: Path) -> None:
    inspection = judge(tmp_path, PER_TENSOR_STATIC)
    facts = (".weight_scale F32 []", "a scale for the whole tensor", ".input_scale F32 []")
    assert_refused(inspection, DECLARATION_MISSING, undeclared("compressed-tensors.fp8-tensor@1", *facts))
    assert set(inspection.resembles) == {"compressed-tensors.fp8-tensor@1", "modelopt.fp8-tensor@1", "comfy.fp8-declared@1"}


def test_b1_02_the_same_tree_as_its_producer_declares_it(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
    assert_named_without_decoder(judge(tmp_path, PER_TENSOR_STATIC, config), "modelopt.fp8-tensor@1")


@pytest.mark.parametrize("asked", [BLOCKWISE, ROWWISE])
def test_b1_02_is_neither_blockwise_nor_rowwise(asked: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, PER_TENSOR_STATIC, contract=asked)
    declaration = () if asked == ROWWISE else (DECLARATION_MISSING,)
    scale = (
        Fault("scale-rank", "mixer.in_proj.weight_scale", expected="[1024]", found=("[]", "one element"))
        if asked == ROWWISE
        else Fault("scale-name-foreign", "mixer.in_proj.weight_scale", expected="_scale_inv", found=("F32 []", "one element"))
    )
    static = Fault("sidecar-forbidden", "mixer.in_proj.input_scale", found="F32 []")
    mismatch = Fault("contract-mismatch", TREE, expected=asked, found="compressed-tensors.fp8-tensor@1")
    assert_refused(inspection, *declaration, scale, static, mismatch)


SPLIT: Tensors = {
    "experts.92.gate_proj.weight": ("F8_E4M3", (256, 384)),
    "experts.92.gate_proj.weight_scale_inv": ("F32", (2, 3)),
}
IN_TWO_SHARDS: dict[str, Any] = {"shards": 2, "placement": dict(zip(SPLIT, (1, 2), strict=True))}


@pytest.mark.parametrize("index", [True, False])
def test_b1_03_weight_and_scale_in_different_shards_are_one_unit(index: bool, tmp_path: Path) -> None:
    inspection = judge(tmp_path, SPLIT, FP8, index=index, **IN_TWO_SHARDS)
    assert_accepted(inspection, BLOCKWISE, {"experts.92.gate_proj.weight": (2, 3)})


@pytest.mark.parametrize(("index", "code"), [(True, "index-shard-missing"), (False, "shards-incomplete")])
def test_b1_03_an_absent_shard_is_an_incomplete_tree_and_not_a_missing_scale(index: bool, code: str, tmp_path: Path) -> None:
    folder = Path(judge(tmp_path, SPLIT, FP8, index=index, **IN_TWO_SHARDS).path)
    (folder / shard_name(2, 2)).unlink()
    inspection = inspect(folder)
    assert inspection.codes == (code,), why(inspection)


@pytest.mark.parametrize("unscaled", [["mtp.0.e_proj"], ["mtp.0.e_proj", "mtp.0.h_proj", "layers.7.mlp.up_proj"]])
def test_b1_04_every_weight_without_a_scale_is_named_and_nothing_else(unscaled: list[str], tmp_path: Path) -> None:
    tensors = {
        **unit("layers.0.mlp.up_proj", 512, 256),
        **{f"{module}.weight": ("F8_E4M3", (512, 512)) for module in unscaled},
        # One byte an element, and still no FP8: detection by width would list them.
        "mask": ("BOOL", (128, 128)),
        "ids": ("U8", (128,)),
        "offsets": ("I8", (128,)),
    }
    expected = "F32 or BF16 or F16"
    found = "no such tensor beside F8_E4M3 [512, 512]"
    faults = [Fault("scale-missing", f"{module}.weight", expected, found) for module in unscaled]
    inspection = judge(tmp_path, tensors, FP8)
    assert_refused(inspection, *faults)
    assert not any(each in why(inspection) for each in ("mask", "ids", "offsets"))


def test_b1_04_one_byte_tensors_that_are_not_fp8_disturb_nothing(tmp_path: Path) -> None:
    tensors = {**unit("layers.0.mlp.up_proj", 512, 256), "mask": ("BOOL", (128, 128)), "ids": ("U8", (128,)), "offsets": ("I8", (128,))}
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE, 1)


COMPRESSED_BLOCK = compressed_tensors_config("block", "g", block_structure=[128, 128])
MINIMAL_BLOCK = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": {"strategy": "block", "block_structure": [128, 128]}}},
    }
}


@pytest.mark.parametrize("scale", ["BF16", "F32"])
@pytest.mark.parametrize("config", [COMPRESSED_BLOCK, MINIMAL_BLOCK])
def test_b1_05_the_same_numbers_under_another_leaf_are_another_layout(scale: str, config: dict[str, Any], tmp_path: Path) -> None:
    tensors: Tensors = {"q_proj.weight": ("F8_E4M3", (256, 384)), "q_proj.weight_scale": (scale, (2, 3))}
    assert_named_without_decoder(judge(tmp_path, tensors, config), "compressed-tensors.fp8-block@1")
    blockwise = judge(tmp_path, tensors, config, contract=BLOCKWISE)
    assert {"scale-name-foreign", "contract-mismatch"} <= set(blockwise.codes), why(blockwise)
    (sidecar,) = (each for each in blockwise.violations if each.code == "scale-name-foreign")
    assert (sidecar.object, sidecar.resembles) == ("q_proj.weight_scale", "compressed-tensors.fp8-block@1")
    rowwise = judge(tmp_path, tensors, config, contract=ROWWISE)
    (rank,) = (each for each in rowwise.violations if each.code == "scale-grid")
    assert rank.object == "q_proj.weight_scale"
    assert "[256] or [256, 1] for weight [256, 384]" in rank.expected
    assert "grid of 128 x 128 blocks" in rank.found


def test_b1_06_a_mixed_tree_is_a_table_by_prefix(tmp_path: Path) -> None:
    tensors: Tensors = {
        "attn.q.weight": ("F8_E4M3", (256, 384)),
        "attn.q.weight_scale": ("F32", (2, 3)),
        "experts.0.w1.weight": ("U8", (256, 64)),
        "experts.0.w1.weight_scale": ("U8", (256, 4)),
    }
    inspection = judge(tmp_path, tensors)
    (mixed,) = (each for each in inspection.violations if each.code == "layout-mixed")
    assert mixed.object == inspection.path
    assert "attn.q: 1 x F8_E4M3 rank 2 with .weight_scale F32 rank 2" in mixed.found
    assert "experts: 1 x U8 rank 2 with .weight_scale U8 rank 2" in mixed.found
    assert "declaration-missing" in inspection.codes
    assert "scale-missing" not in inspection.codes, why(inspection)  # it would send the user the wrong way


TO_Q: Tensors = {"blocks.0.attn.to_q.weight": ("F8_E4M3", (256, 256))}


@pytest.mark.parametrize("static", [{}, {"blocks.0.attn.to_q.scale_input": ("F32", ())}])
def test_b1_07_per_tensor_scale_weight_is_named(static: Tensors, tmp_path: Path) -> None:
    tensors = {**TO_Q, "blocks.0.attn.to_q.scale_weight": ("F32", ()), **static}
    assert_named_without_decoder(judge(tmp_path, tensors), "comfy.fp8-scaled@1")


def test_b1_07_per_tensor_weight_scale_is_named(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**TO_Q, "blocks.0.attn.to_q.weight_scale": ("F32", (1,))})
    assert_refused(inspection, DECLARATION_MISSING, undeclared("compressed-tensors.fp8-tensor@1", ".weight_scale F32 [1]", "whole tensor"))


@pytest.mark.parametrize("config", [None, FP8])
@pytest.mark.parametrize("sidecar", ["scaling_factor", "my_scale", "weight_descale", "weight_absmax"])
def test_b1_07_an_unknown_sibling_is_an_unrecognised_leaf_and_not_a_missing_scale(
    sidecar: str, config: dict[str, Any] | None, tmp_path: Path
) -> None:
    """Beside a blockwise unit too, so that the verdict does not rest on the tree having no other unit."""
    tensors = {**TO_Q, f"blocks.0.attn.to_q.{sidecar}": ("F32", (2, 2)), **unit("blocks.0.attn.to_k", 256, 384)}
    inspection = judge(tmp_path, tensors, config, contract=BLOCKWISE)
    unknown = Fault("scale-name-unknown", "blocks.0.attn.to_q.weight", expected="blocks.0.attn.to_q.weight_scale_inv", found=sidecar)
    assert_refused(inspection, *([] if config else [DECLARATION_MISSING]), unknown)


@pytest.mark.parametrize("wrapper", ["", "model.language_model."])
def test_b1_10_an_excluded_gate_is_not_gate_proj(wrapper: str, tmp_path: Path) -> None:
    tensors = {**bf16(f"{wrapper}layers.0.mlp.gate.weight", 8, 256), **unit(f"{wrapper}layers.0.mlp.gate_proj", 512, 256)}
    config = fp8_config(modules_to_not_convert=["model.language_model.layers.0.mlp.gate"])
    inspection = judge(tmp_path, tensors, config)
    assert_accepted(inspection, BLOCKWISE, {f"{wrapper}layers.0.mlp.gate_proj.weight": (4, 2)})
    assert not inspection.exclusions.contradicted
    assert inspection.exclusions.matched == bool(wrapper)
    assert inspection.groups is not None
    assert tuple(inspection.groups.unquantized) == (f"{wrapper}layers.0.mlp.gate.weight",)


FUSED = {**unit("mlp.gate_up_proj", 1024, 256), **bf16("linear_attn.in_proj_ba.weight", 96, 256)}


def test_b1_11_an_exclusion_does_not_hide_a_fused_name(tmp_path: Path) -> None:
    inspection = judge(tmp_path, FUSED, fp8_config(modules_to_not_convert=["mlp.gate", "linear_attn.in_proj_a"]))
    assert_accepted(inspection, BLOCKWISE, {"mlp.gate_up_proj.weight": (8, 2)})
    assert not inspection.exclusions.contradicted
    assert noted(inspection, "0 of 2 exclusion entries match any tensor")


def test_b1_11_an_exclusion_that_the_bytes_contradict_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    inspection = judge(tmp_path, FUSED, fp8_config(modules_to_not_convert=["mlp.gate_up_proj", "linear_attn.in_proj_ba"]))
    assert_accepted(inspection, BLOCKWISE, {"mlp.gate_up_proj.weight": (8, 2)})
    assert inspection.exclusions.contradicted == (("mlp.gate_up_proj", "mlp.gate_up_proj.weight"),)
    assert noted(inspection, "'mlp.gate_up_proj'", "contradicted by the bytes", "mlp.gate_up_proj.weight")


GATES = {**bf16("layers.0.mlp.gate.weight", 8, 256), **unit("layers.0.mlp.gate_proj", 512, 256)}


@pytest.mark.parametrize(
    ("entry", "matched"),
    [
        ("mlp.gate.", 1),
        (r"re:.*mlp\.gate$", 1),
        ("re:.*mlp.gate.*", 1),  # a pattern by its documented prefix: it does cover gate_proj, which the next test asks about
        ("[", 0),  # without the prefix a literal, however it looks
        ("mlp.gate$", 0),
        (".*gate", 0),
    ],
)
def test_b1_12_entries_are_literals_unless_the_documented_prefix_says_otherwise(entry: str, matched: int, tmp_path: Path) -> None:
    inspection = judge(tmp_path, GATES, fp8_config(modules_to_not_convert=[entry]))
    assert_accepted(inspection, BLOCKWISE, {"layers.0.mlp.gate_proj.weight": (4, 2)})
    assert inspection.exclusions.matched == matched
    covers_the_unit = entry == "re:.*mlp.gate.*"
    assert bool(inspection.exclusions.contradicted) == covers_the_unit


@pytest.mark.parametrize("entry", ["re:[", "re:(", r"re:*gate", "re:(?P<a>x)(?P<a>y)"])
def test_b1_12_an_invalid_pattern_is_a_typed_fault_of_the_configuration(entry: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, GATES, fp8_config(modules_to_not_convert=["mlp.gate", entry]))
    where = f"config.json: quantization_config: {entry}"
    assert_refused(inspection, Fault("declaration-invalid", where, expected="regular expression"))


def test_b1_12_a_pattern_that_could_take_for_ever_is_not_evaluated_and_says_so(tmp_path: Path) -> None:
    tensors = {**GATES, **unit("a" * 60, 256, 384)}
    inspection = judge(tmp_path, tensors, fp8_config(modules_to_not_convert=["re:(a+)+$", "mlp.gate"]))
    assert_accepted(inspection, BLOCKWISE, 2)
    assert inspection.exclusions.not_evaluated == ("re:(a+)+$",)
    assert noted(inspection, "not evaluated", "re:(a+)+$")


def test_b1_13_an_exclusion_by_a_short_name_is_reported_and_the_dtype_decides(tmp_path: Path) -> None:
    unquantized = "language_model.model.layers.0.linear_attn.in_proj_qkv.weight"
    tensors = {**bf16(unquantized, 512, 256), **unit("language_model.model.layers.0.mlp.up_proj", 512, 256)}
    inspection = judge(tmp_path, tensors, fp8_config(modules_to_not_convert=["linear_attn.in_proj_qkv"]))
    assert_accepted(inspection, BLOCKWISE, {"language_model.model.layers.0.mlp.up_proj.weight": (4, 2)})
    assert noted(inspection, "matched by suffix", "linear_attn.in_proj_qkv")
    assert inspection.groups is not None
    assert tuple(inspection.groups.unquantized) == (unquantized,)


@pytest.mark.parametrize("entries", [["model.language_model.layers.1.ple.key_proj"], ["W_up", "W_down"]])
def test_b1_14_a_list_that_matches_nothing_is_noted(entries: list[str], tmp_path: Path) -> None:
    tensors = {**bf16("model.layers.1.ple.key_proj.weight", 512, 256), **unit("model.layers.1.mlp.up_proj", 512, 256)}
    inspection = judge(tmp_path, tensors, fp8_config(modules_to_not_convert=entries))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert noted(inspection, f"0 of {len(entries)} exclusion entr", "any tensor")


@pytest.mark.parametrize(
    ("entry", "name", "shape"),
    [
        ("model.norm", "model.norm.weight", (256,)),
        ("linear_attn.conv1d", "linear_attn.conv1d.weight", (512, 1, 4)),
        ("visual", "visual.a.bias", (8,)),
    ],
)
def test_b1_14_an_entry_that_names_a_vector_or_a_convolution_matches_a_tensor(
    entry: str, name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Official lists name norms and conv1d; the note that nothing matches would call a good export a mismatched one."""
    tensors = {name: ("BF16", shape), **unit("layers.1.mlp.up_proj", 512, 256)}
    inspection = judge(tmp_path, tensors, fp8_config(modules_to_not_convert=[entry]))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert inspection.exclusions.matched == 1
    assert not noted(inspection, "0 of 1")


def test_b1_15_the_last_block_of_rows_may_be_partial(tmp_path: Path) -> None:
    tensors: Tensors = {"kv_a_proj_with_mqa.weight": ("F8_E4M3", (576, 7168)), "kv_a_proj_with_mqa.weight_scale_inv": ("F32", (5, 56))}
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE, {"kv_a_proj_with_mqa.weight": (5, 56)})


def test_b1_16_the_block_is_the_contracts_and_never_inferred_from_shapes(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"w.weight": ("F8_E4M3", (1000, 256)), "w.weight_scale_inv": ("F32", (8, 2))}, FP8)
    assert_accepted(inspection, BLOCKWISE, {"w.weight": (8, 2)})
    (found,) = inspection.units
    assert found.layout.block == (128, 128)  # 1000 rows over 8 scales would say 125


def test_b1_17_a_transposed_grid_is_refused_from_the_header(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"w.weight": ("F8_E4M3", (512, 6144)), "w.weight_scale_inv": ("F32", (48, 4))}, FP8)
    assert_refused(inspection, Fault("scale-grid-transposed", "w.weight_scale_inv", "[4, 48]", ("[48, 4]", "transposed")))


def test_b1_20_a_fused_unit_is_accepted_whole_and_its_members_are_not_proved(tmp_path: Path) -> None:
    tensors: Tensors = {
        "experts.0.gate_up_proj.weight": ("F8_E4M3", (640, 256)),
        "experts.0.gate_up_proj.weight_scale_inv": ("F32", (5, 2)),
    }
    inspection = judge(tmp_path, tensors, FP8)
    assert_accepted(inspection, BLOCKWISE, {"experts.0.gate_up_proj.weight": (5, 2)})
    assert any("members begin" in what for what, _ in inspection.not_provable)


@pytest.mark.parametrize(
    ("shape", "code", "words"),
    [
        ((1, 384), "scale-grid", "one for each column, [1, in]"),
        ((384, 1), "scale-grid", "as many as columns, [in, 1]"),
        ((1, 256), "scale-grid-transposed", "as many as rows, transposed to [1, out]"),
    ],
)
def test_b1_21_a_two_dimensional_scale_is_not_thereby_a_grid_of_blocks(
    shape: tuple[int, ...], code: str, words: str, tmp_path: Path
) -> None:
    tensors: Tensors = {"q.weight": ("F8_E4M3", (256, 384)), "q.weight_scale": ("F32", shape)}
    found = (str(list(shape)), words)
    rowwise = judge(tmp_path, tensors, contract=ROWWISE)
    seen = "the transposed grid" if code == "scale-grid-transposed" else found
    assert_refused(rowwise, Fault(code, "q.weight_scale", "[256] or [256, 1] for weight [256, 384]", seen))
    blockwise = judge(tmp_path, tensors, FP8, contract=BLOCKWISE)
    assert_refused(blockwise, Fault("scale-name-foreign", "q.weight_scale", "_scale_inv", found))
    assert judge(tmp_path, tensors).contract is None


CHANNEL: Tensors = {"q.weight": ("F8_E4M3", (512, 256)), "q.weight_scale": ("F32", (512, 1))}


@pytest.mark.parametrize("group", ["group_0", "FP8_DYNAMIC"])
def test_b1_22_channel_scales_keep_their_rank_and_groups_are_found_by_content(group: str, tmp_path: Path) -> None:
    config = compressed_tensors_config("channel", group)
    assert_named_without_decoder(judge(tmp_path, CHANNEL, config), "compressed-tensors.fp8-channel@1")


def test_b1_22_channel_scales_without_a_declaration(tmp_path: Path) -> None:
    inspection = judge(tmp_path, CHANNEL)
    assert_accepted(inspection, ROWWISE, {"q.weight": (512, 1)})  # the same formula, and the scale keeps its rank
    half = judge(tmp_path, {**CHANNEL, "q.weight_scale": ("F16", (512, 1))})
    channel = "compressed-tensors.fp8-channel@1"
    dtype = Fault("scale-dtype", "q.weight_scale", "F32 or BF16", "F16", resembles=channel)
    assert_refused(half, dtype, undeclared(channel, "[512, 1]", "one for each row"))
    assert ROWWISE not in half.resembles


@pytest.mark.parametrize(("shape", "words"), [((4, 1, 512), "as many as rows, transposed"), ((4, 512, 1), "one for each row")])
def test_b1_22_stacked_channel_scales_are_refused_with_the_axis_named(shape: tuple[int, ...], words: str, tmp_path: Path) -> None:
    tensors: Tensors = {"experts.w13.weight": ("F8_E4M3", (4, 512, 256)), "experts.w13.weight_scale": ("F32", shape)}
    inspection = judge(tmp_path, tensors, compressed_tensors_config("channel"))
    rank = Fault("weight-rank", "experts.w13.weight", "[out, in]", "[4, 512, 256]")
    assert_refused(inspection, rank)
    assert inspection.nearest == "compressed-tensors.fp8-channel@1"
    blockwise = judge(tmp_path, tensors, FP8, contract=BLOCKWISE)
    assert_refused(blockwise, Fault("scale-name-foreign", "experts.w13.weight_scale", "_scale_inv", (str(list(shape)), words)))


ROWS: Tensors = {"q.weight": ("F8_E4M3", (256, 128))}


@pytest.mark.parametrize(
    ("length", "words"),
    [(255, "255 scales for 256 rows"), (257, "257 scales for 256 rows"), (128, "as many as columns"), (1, "one element")],
)
def test_b1_23_a_rowwise_scale_of_another_length_is_refused_with_both_numbers(length: int, words: str, tmp_path: Path) -> None:
    tensors = {**ROWS, "q.weight_scale": ("F32", (length,))}
    grid = Fault("scale-grid", "q.weight_scale", expected="[256] or [256, 1] for weight [256, 128]", found=(f"[{length}]", words))
    mismatch = [Fault("contract-mismatch", found="compressed-tensors.fp8-tensor@1")] if length == 1 else []
    assert_refused(judge(tmp_path, tensors, contract=ROWWISE), grid, *mismatch)


@pytest.mark.parametrize("length", [255, 257, 128])
def test_b1_23_without_a_contract_asked_for_the_numbers_stand_there_too(length: int, tmp_path: Path) -> None:
    """A rank-1 scale that nothing declares comes closest to the one layout that declares nothing and has rank-1 scales."""
    inspection = judge(tmp_path, {**ROWS, "q.weight_scale": ("F32", (length,))})
    assert_refused(inspection, Fault("scale-grid", "q.weight_scale", expected="[256]", found=f"[{length}]"))
    assert inspection.nearest == ROWWISE


def test_b1_23_one_scale_for_many_rows_is_per_tensor(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**ROWS, "q.weight_scale": ("F32", (1,))})
    assert_refused(inspection, DECLARATION_MISSING, undeclared("compressed-tensors.fp8-tensor@1", "[256, 128]", "[1]", "whole tensor"))


def test_b1_23_one_row_with_one_scale_is_rowwise(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"q.weight": ("F8_E4M3", (1, 128)), "q.weight_scale": ("F32", (1,))})
    assert_accepted(inspection, ROWWISE, {"q.weight": (1,)})


STATIC: Tensors = {
    "q.weight": ("F8_E4M3", (4096, 4096)),
    "q.weight_scale_inv": ("BF16", ()),
    "q.activation_scale": ("F32", ()),
}
STATIC_CONFIG = fp8_config(activation_scheme="static", weight_block_size=None, fmt=...)


def test_b1_24_a_block_size_of_null_is_not_128(tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, STATIC, STATIC_CONFIG), "hf.fp8-tensor-static@1")


def test_b1_24_asked_for_blockwise_everything_that_differs_is_listed(tmp_path: Path) -> None:
    where = "config.json: quantization_config: "
    assert_refused(
        judge(tmp_path, STATIC, STATIC_CONFIG, contract=BLOCKWISE),
        Fault("declaration-incomplete", f"{where}weight_block_size", "[128, 128]", "null"),
        Fault("declaration-mismatch", f"{where}activation_scheme", "dynamic", "static"),
        Fault("scale-rank", "q.weight_scale_inv", "[32, 32] for weight [4096, 4096]", ("[]", "one element")),
        Fault("sidecar-forbidden", "q.activation_scale", found="F32 []"),
        Fault("contract-mismatch", TREE, BLOCKWISE, ("declared: hf.fp8-tensor-static@1", "bytes: ")),
    )


@pytest.mark.parametrize(
    ("block", "code", "found"),
    [
        (..., "declaration-incomplete", "absent"),
        (None, "declaration-incomplete", "null"),
        ([], "declaration-invalid", "[]"),
        ([128], "declaration-invalid", "[128]"),
        ("128", "declaration-invalid", '"128"'),
        ([128.0, 128.0], "declaration-invalid", "[128.0, 128.0]"),
        ([0, 128], "declaration-invalid", "[0, 128]"),
        ([True, 128], "declaration-invalid", "[True, 128]"),
        ([-128, 128], "declaration-invalid", "[-128, 128]"),
        ([128, 128, 1], "declaration-invalid", "[128, 128, 1]"),
        ({"rows": 128}, "declaration-invalid", "rows"),
        (128, "declaration-invalid", "128"),
        (True, "declaration-invalid", "rue"),
        (["128", "128"], "declaration-invalid", "'128'"),
    ],
)
def test_b1_24_a_block_size_has_no_default_and_an_exact_type(block: Any, code: str, found: str, tmp_path: Path) -> None:
    """The grids are right for 128 x 128, so that only the declaration can be what is wrong."""
    inspection = judge(tmp_path, unit("q", 512, 384), fp8_config(weight_block_size=block))
    assert_refused(inspection, Fault(code, "config.json: quantization_config: weight_block_size", "[128, 128]", found))
    assert inspection.nearest == BLOCKWISE


def test_b1_25_a_declared_block_that_the_grid_contradicts(tmp_path: Path) -> None:
    tensors: Tensors = {"w.weight": ("F8_E4M3", (512, 512)), "w.weight_scale_inv": ("F32", (4, 4))}
    assert_refused(
        judge(tmp_path, tensors, fp8_config(weight_block_size=[64, 128])),
        Fault("declaration-mismatch", "config.json: quantization_config: weight_block_size", "[128, 128]", "[64, 128]"),
        Fault("declaration-contradicts-grid", "w.weight_scale_inv", ("[8, 4]", "[64, 128]", "[512, 512]"), "[4, 4]"),
    )


def test_b1_26_row_groups_are_refused_by_their_block(tmp_path: Path) -> None:
    tensors: Tensors = {"w.weight": ("F8_E4M3", (256, 1024)), "w.weight_scale_inv": ("F32", (256, 2))}
    found = ("weight_block_size=[1, 512] (row groups of 512)", "_scale_inv F32 [256, 2]")
    inspection = judge(tmp_path, tensors, fp8_config(weight_block_size=[1, 512]))
    assert_refused(inspection, Fault("declaration-unknown", "config.json: quantization_config", found=found))
    assert inspection.nearest is None  # declaration and bytes agree: nothing is damaged


@pytest.mark.parametrize("scales", [["BF16"], ["F16"], ["F32"], ["F32", "BF16"], ["F32", "BF16", "F16"]])
def test_b1_27_grids_of_16_bits_expand_exactly_and_are_accepted(scales: list[str], tmp_path: Path) -> None:
    """Pinned by the contract: F32, BF16 and F16 each expand exactly to F32, in one tree or in several."""
    tensors = {
        name: entry
        for place, each in enumerate(scales)
        for name, entry in unit(f"layers.{place}.down_proj", 2048, 6144, scale=each).items()
    }
    inspection = judge(tmp_path, tensors, FP8)
    assert_accepted(inspection, BLOCKWISE, {f"layers.{place}.down_proj.weight": (16, 48) for place in range(len(scales))})
    assert noted(inspection, "several dtypes", *scales) == (len(scales) > 1)


@pytest.mark.parametrize("scale", ["F64", "U8", "I8", "F8_E8M0", "F8_E4M3", "I32", "BOOL"])
def test_b1_27_any_other_scale_dtype_is_refused(scale: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("down_proj", 2048, 6144, scale=scale), FP8)
    assert_refused(inspection, Fault("scale-dtype", "down_proj.weight_scale_inv", "F32 or BF16 or F16", scale))


SOMEWHERE = unit("layers.0.mlp.down_proj", 2048, 6144)


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": {"quantization_config": fp8_declaration()}},
        {"quantization_config": fp8_declaration(), "text_config": {"quantization_config": fp8_declaration()}},
        {"quantization_config": fp8_declaration(), "text_config": {"hidden_size": 6144}},
        {"quantization_config": fp8_declaration(), "text_config": {"quantization_config": None}},
    ],
)
def test_b1_28_a_declaration_may_stand_under_text_config(config: dict[str, Any], tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, SOMEWHERE, config), BLOCKWISE, 1)


def test_b1_28_two_declarations_that_differ_are_refused(tmp_path: Path) -> None:
    config = {"quantization_config": fp8_declaration(), "text_config": {"quantization_config": fp8_declaration(weight_block_size=[64, 64])}}
    assert_refused(
        judge(tmp_path, SOMEWHERE, config),
        Fault("declaration-conflict", "quantization declaration", found=("[128, 128]", "[64, 64]", "text_config.quantization_config")),
        Fault("declaration-mismatch", "config.json: text_config.quantization_config: weight_block_size", "[128, 128]", "[64, 64]"),
    )


@pytest.mark.parametrize("config", [None, {}, {"quantization_config": None}, {"hidden_size": 6144, "text_config": {}}])
def test_b1_28_without_a_declaration_the_bytes_are_named_and_nothing_is_assumed(config: dict[str, Any] | None, tmp_path: Path) -> None:
    inspection = judge(tmp_path, SOMEWHERE, config)
    assert_refused(inspection, DECLARATION_MISSING, undeclared(BLOCKWISE, "[2048, 6144]", "[16, 48]"))
    assert inspection.resembles == (BLOCKWISE,)


def test_b1_29_power_of_two_scales_are_declared_and_not_proved(tmp_path: Path) -> None:
    inspection = judge(tmp_path, SOMEWHERE, fp8_config(scale_fmt="ue8m0"))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert noted(inspection, "scale_fmt ue8m0", "not shown by headers")
    assert any("values" in what for what, _ in inspection.not_provable)


def test_b1_30_b1_31_what_only_the_bytes_show_is_listed_as_not_proved(tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), FP8)
    assert_accepted(inspection, BLOCKWISE, 1)
    not_provable = " ".join(what for what, _ in inspection.not_provable)
    for words in ("zero, negative or not finite", "NaN codes", "direction of the scale"):
        assert words in not_provable


E5M2: Tensors = {"blocks.0.q.weight": ("F8_E5M2", (256, 384)), "blocks.0.q.weight_scale_inv": ("F32", (2, 3))}
E5M2_FAULT = Fault("weight-dtype", "blocks.0.q.weight", "F8_E4M3", "F8_E5M2")


def test_b1_32_e5m2_is_refused_and_unknown_side_tensors_are_listed(tmp_path: Path) -> None:
    assert_refused(judge(tmp_path, E5M2, FP8), E5M2_FAULT)
    beside = {**E5M2, "blocks.0.q.comfy_quant": ("U8", (57,))}
    assert_refused(judge(tmp_path, beside, FP8), E5M2_FAULT, Fault("sidecar-forbidden", "blocks.0.q.comfy_quant", found="U8 [57]"))
    alone = {**unit("blocks.0.k", 256, 384), "blocks.0.q.comfy_quant": ("U8", (57,))}
    assert_refused(judge(tmp_path, alone, FP8), Fault("scale-orphan", "blocks.0.q.comfy_quant", "blocks.0.q.weight", "U8 [57]"))


@pytest.mark.parametrize("tensors", [E5M2, unit("blocks.0.q", 256, 384)])
def test_b1_32_a_producers_metadata_is_a_declaration_and_one_more_than_agree(tensors: Tensors, tmp_path: Path) -> None:
    folder = Path(judge(tmp_path, tensors, FP8).path)
    hint = '{"model.diffusion_model.blocks.0.q": {"format": "float8_e4m3fn", "scale": 1.0}}'
    write_sparse(folder / "model.safetensors", tensors, {"format": "pt", "_quantization_metadata": hint})
    hinted = inspect(folder)
    assert hinted.contract is None
    assert "declaration-conflict" in hinted.codes


MTP_FP8: Tensors = {
    "mtp.layers.48.mlp.experts.0.down_proj.weight": ("F8_E4M3", (256, 128)),
    "mtp.layers.48.mlp.experts.0.down_proj.weight_scale_inv": ("F32", (2, 1)),
}
MIXED_PRECISION = {
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"mtp.layers.0.mlp.experts": {"quant_algo": "FP8_BLOCK_SCALES", "group_size": 128}},
    }
}


def test_b1_34_block_fp8_experts_beside_4_bit_ones_are_a_mixed_tree(tmp_path: Path) -> None:
    tensors: Tensors = {
        "model.layers.0.mlp.experts.0.down_proj.weight": ("U8", (256, 64)),
        "model.layers.0.mlp.experts.0.down_proj.weight_scale": ("F8_E4M3", (256, 8)),
        "model.layers.0.mlp.experts.0.down_proj.weight_scale_2": ("F32", ()),
        **MTP_FP8,
    }
    inspection = judge(tmp_path, tensors, MIXED_PRECISION)
    (mixed,) = inspection.violations
    assert "MIXED_PRECISION" in mixed.expected
    assert f"mtp.layers: 1 x F8_E4M3 rank 2 with _scale_inv F32 rank 2 ({BLOCKWISE})" in mixed.found
    assert "model.layers: 1 x U8 rank 2 with" in mixed.found
    assert "(modelopt.nvfp4@1)" in mixed.found
    assert set(inspection.resembles) == {BLOCKWISE, "modelopt.nvfp4@1", "comfy.nvfp4-swizzled@1"}
    assert noted(inspection, "quantized_layers", "mtp.layers.0.mlp.experts")


def test_b1_34_the_unit_by_itself_is_identified_and_the_declared_prefix_reported(tmp_path: Path) -> None:
    inspection = judge(tmp_path, MTP_FP8, MIXED_PRECISION)
    assert inspection.contract is None
    assert inspection.resembles == (BLOCKWISE,)
    assert "declaration-unknown" in inspection.codes or "declaration-mismatch" in inspection.codes, why(inspection)
    assert noted(inspection, "quantized_layers", "mtp.layers.0.mlp.experts")


def test_b1_35_a_dense_projection_that_no_list_names_is_accepted_and_reported(tmp_path: Path) -> None:
    tensors = {**bf16("mtp.eh_proj.weight", 512, 1024), **bf16("lm_head.weight", 1024, 512), **unit("mtp.layers.0.mlp.up_proj", 512, 256)}
    inspection = judge(tmp_path, tensors, fp8_config(modules_to_not_convert=["lm_head"]))
    assert_accepted(inspection, BLOCKWISE, {"mtp.layers.0.mlp.up_proj.weight": (4, 2)})
    assert inspection.exclusions.unlisted == ("mtp.eh_proj.weight",)
    assert noted(inspection, "unquantized and not declared", "mtp.eh_proj.weight")


ORPHAN = "shared_head.head.weight_scale_inv"


@pytest.mark.parametrize("body", [{}, unit("layers.0.mlp.up_proj", 512, 256)])
def test_b1_36_a_scale_beside_a_dense_weight_is_an_orphan(body: Tensors, tmp_path: Path) -> None:
    tensors = {**body, **bf16("shared_head.head.weight", 1024, 256), ORPHAN: ("F32", (8, 2))}
    found = ("F32 [8, 2]", "shared_head.head.weight", "BF16")
    assert_refused(judge(tmp_path, tensors, FP8), Fault("scale-orphan", ORPHAN, "shared_head.head.weight", found))


@pytest.mark.parametrize("body", [{}, unit("layers.0.mlp.up_proj", 512, 256)])
def test_b1_36_a_scale_whose_weight_does_not_exist_is_an_orphan(body: Tensors, tmp_path: Path) -> None:
    tensors = {**body, ORPHAN: ("F32", (8, 2)), **bf16("norm.weight", 256)}
    assert_refused(judge(tmp_path, tensors, FP8), Fault("scale-orphan", ORPHAN, "shared_head.head.weight", "F32 [8, 2] and no tensor"))


def test_b1_37_a_rowwise_head_over_a_blockwise_body_is_mixed(tmp_path: Path) -> None:
    tensors = {
        **unit("model.layers.0.mlp.up_proj", 512, 256),
        "lm_head.weight": ("F8_E4M3", (248320, 5120)),
        "lm_head.weight_scale": ("F32", (248320,)),
    }
    for tied in (False, True):
        inspection = judge(tmp_path, tensors, {**FP8, "tie_word_embeddings": tied})
        assert_refused(
            inspection,
            Fault(
                "layout-mixed",
                TREE,
                BLOCKWISE,
                (f"lm_head: 1 x F8_E4M3 rank 2 with .weight_scale F32 rank 1 ({ROWWISE})", "model.layers: 1 x"),
            ),
            Fault("scale-name-foreign", "lm_head.weight_scale", "_scale_inv", ("[248320]", "one for each row"), resembles=ROWWISE),
        )


def test_b1_37_a_tied_head_that_is_absent_is_nothing_to_check(tmp_path: Path) -> None:
    tensors = {**bf16("model.embed_tokens.weight", 1024, 256), **unit("model.layers.0.mlp.up_proj", 512, 256)}
    assert_accepted(judge(tmp_path, tensors, {**FP8, "tie_word_embeddings": True}), BLOCKWISE, 1)


def test_b1_38_a_head_whose_vocabulary_is_no_multiple_of_128(tmp_path: Path) -> None:
    tensors: Tensors = {"lm_head.weight": ("F8_E4M3", (50277, 256)), "lm_head.weight_scale_inv": ("F32", (393, 2))}
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE, {"lm_head.weight": (393, 2)})


PROJECTIONS = {"gate_proj": (512, 256), "up_proj": (512, 256), "down_proj": (256, 512)}
EXPERTS = {
    name: entry
    for number in range(8)
    for projection, shape in PROJECTIONS.items()
    for name, entry in unit(f"mlp.experts.{number}.{projection}", *shape).items()
}


def test_b1_39_one_matrix_for_each_expert(tmp_path: Path) -> None:
    inspection = judge(tmp_path, EXPERTS, FP8)
    assert_accepted(inspection, BLOCKWISE, 24)
    assert not noted(inspection, "expert numbers")


def test_b1_39_a_gap_in_the_expert_numbers_is_noted(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {name: entry for name, entry in EXPERTS.items() if ".5." not in name}, FP8)
    assert_accepted(inspection, BLOCKWISE, 21)
    assert noted(inspection, "mlp.experts", "skip 5")


def test_b1_39_an_expert_without_scales_is_named(tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in EXPERTS.items() if not (".5." in name and name.endswith("_scale_inv"))}
    inspection = judge(tmp_path, tensors, FP8)
    faults = [
        Fault("scale-missing", f"mlp.experts.5.{projection}.weight", found=str(list(shape))) for projection, shape in PROJECTIONS.items()
    ]
    assert_refused(inspection, *faults)


def test_b1_40_stacked_experts_have_a_grid_for_each_expert(tmp_path: Path) -> None:
    inspection = judge(tmp_path, stacked_unit("experts.gate_up_proj", 8, 512, 256), FP8)
    assert_accepted(inspection, BLOCKWISE, {"experts.gate_up_proj": (8, 4, 2)})
    (found,) = inspection.units
    assert (found.layout.form, found.layout.experts, found.layout.block) == ("stacked", 8, (128, 128))


STACKED: Tensors = {"experts.gate_up_proj": ("F8_E4M3", (8, 512, 256))}


def test_b1_40_the_plural_leaf_of_an_older_library_is_not_an_alias(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**STACKED, "experts.gate_up_proj_scales_inv": ("F32", (8, 4, 2))}, FP8)
    assert_refused(inspection, Fault("scale-name-foreign", "experts.gate_up_proj_scales_inv", "_scale_inv", "F32 [8, 4, 2]"))


def test_b1_40_a_stacked_weight_without_a_scale_is_never_skipped(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**STACKED, **unit("up_proj", 512, 256)}, FP8)
    assert_refused(inspection, Fault("scale-missing", "experts.gate_up_proj", "[experts, out/128, in/128]", "F8_E4M3 [8, 512, 256]"))


@pytest.mark.parametrize(
    ("scale", "code"),
    [
        ((7, 4, 2), "scale-grid"),
        ((8, 2, 4), "scale-grid-transposed"),
        ((4, 2), "scale-rank"),
        ((32, 2), "scale-rank"),  # the experts fused into the rows of the grid
        ((8, 1, 1), "scale-grid"),
        ((8,), "scale-rank"),
    ],
)
def test_b1_40_a_stacked_grid_of_another_shape(scale: tuple[int, ...], code: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**STACKED, "experts.gate_up_proj_scale_inv": ("F32", scale)}, FP8)
    expected = "[8, 4, 2] for weight [8, 512, 256]"
    # One scale for each expert is how Mistral-Small-4 writes it, and is worth saying.
    alike = [undeclared("hf.fp8-tensor-static@1", "[8, 1, 1]")] if scale == (8, 1, 1) else []
    assert_refused(inspection, Fault(code, "experts.gate_up_proj_scale_inv", expected, str(list(scale))), *alike)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp.up_proj.bias", (512,)),
        ("conv.weight", (64, 32, 3, 3)),
        ("norm.weight", (256,)),
        ("temperature", ()),
        ("patch.weight", (64, 3, 2, 14, 14)),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_b1_40_a_quantized_tensor_of_any_other_rank_is_a_refusal_and_never_a_skip(
    name: str, shape: tuple[int, ...], scaled: bool, tmp_path: Path
) -> None:
    tensors = {**unit("up_proj", 512, 256), name: ("F8_E4M3", shape)}
    if scaled:
        tensors[f"{name}_scale_inv"] = ("F32", (1,) * len(shape))
    inspection = judge(tmp_path, tensors, FP8)
    rank = Fault("weight-rank", name, found=str(list(shape)))
    assert_refused(inspection, rank, *([] if scaled else [Fault("scale-missing", name)]))


def test_b1_41_the_facts_of_a_unit_cannot_be_changed(tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), FP8)
    (found,) = inspection.units
    assert (found.layout.contract, found.layout.block) == (BLOCKWISE, (128, 128))
    for target, field in ((found, "layout"), (found.layout, "block"), (found.layout, "contract"), (inspection, "contract")):
        with pytest.raises(AttributeError):
            setattr(target, field, None)
    assert attrs.evolve(found.layout, block=None) is not found.layout


def test_b1_42_a_dense_head_needs_no_scale(tmp_path: Path) -> None:
    tensors = {**bf16("lm_head.weight", 1024, 256), **unit("layers.0.mlp.up_proj", 512, 256)}
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE, {"layers.0.mlp.up_proj.weight": (4, 2)})


def test_b1_43_the_declaration_says_blockwise_and_the_leaf_says_otherwise(tmp_path: Path) -> None:
    tensors: Tensors = {"w.weight": ("F8_E4M3", (256, 256)), "w.weight_scale": ("F32", (2, 2))}
    block = "compressed-tensors.fp8-block@1"
    assert_refused(
        judge(tmp_path, tensors, FP8),
        Fault("scale-name-foreign", "w.weight_scale", "_scale_inv", "F32 [2, 2]", resembles=block),
        undeclared(block, ".weight_scale F32 [2, 2]"),
    )


@pytest.mark.parametrize(
    ("scheme", "code"),
    [("static", "declaration-mismatch"), (None, "declaration-incomplete"), (True, "declaration-invalid")],
)
def test_b1_43_the_activation_scheme_is_part_of_the_declaration(scheme: Any, code: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), fp8_config(activation_scheme=scheme))
    assert_refused(inspection, Fault(code, "config.json: quantization_config: activation_scheme", "dynamic"))


BY_TENSOR: Tensors = {"q.weight": ("F8_E4M3", (256, 256)), "q.weight_scale": ("F32", (1,))}


def test_b1_45_identification_starts_from_the_bytes(tmp_path: Path) -> None:
    tensor = "compressed-tensors.fp8-tensor@1"
    assert_named_without_decoder(judge(tmp_path, BY_TENSOR, compressed_tensors_config("tensor")), tensor)
    assert_refused(judge(tmp_path, BY_TENSOR), DECLARATION_MISSING, undeclared(tensor, ".weight_scale F32 [1]"))
    bare = judge(tmp_path, BY_TENSOR, {"quantization_config": {"quant_method": "compressed-tensors"}})
    strategy = "config.json: quantization_config: config_groups.*.weights.strategy"
    assert {(each.code, each.object) for each in bare.violations} == {("declaration-incomplete", strategy)}, why(bare)
    assert tensor in bare.resembles


def test_b1_45_the_method_alone_makes_no_dense_tree_quantized(tmp_path: Path) -> None:
    """A declaration confirms or contradicts; the bytes are unquantized, so a quantized contract has no unit."""
    inspection = judge(tmp_path, bf16("q.weight", 256, 256), FP8)
    assert_refused(inspection, Fault("units-missing", TREE, BLOCKWISE, "1 unquantized tensors"))


@pytest.mark.parametrize("method", ["fp9", "FP8", "fp8 ", "gguf", ""])
def test_b6_07_an_unknown_method_is_never_loadable(method: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), fp8_config(quant_method=method))
    where = "config.json: quantization_config: quant_method"
    assert_refused(inspection, Fault("declaration-unknown", where, '"fp8"', f'"{method}"'))


def test_b6_07_keys_without_a_method_declare_nothing_either(tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), fp8_config(quant_method=...))
    assert_refused(inspection, Fault("declaration-incomplete", "config.json: quantization_config: quant_method", '"fp8"', "absent"))


def test_b6_08_asked_declared_and_found_stand_side_by_side(tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("w", 256, 384), FP8, contract=ROWWISE)
    assert_refused(
        inspection,
        Fault("declaration-mismatch", "config.json: quantization_config: quant_method", '"modelopt"', '"fp8"'),
        Fault("declaration-incomplete", "config.json: quantization_config: quant_algo", '"FP8"', "absent"),
        Fault("scale-name-foreign", "w.weight_scale_inv", ".weight_scale", "F32 [2, 3]", resembles=BLOCKWISE),
        Fault("contract-mismatch", TREE, ROWWISE, ("declared: ", BLOCKWISE, "bytes: ", "_scale_inv F32 [2, 3]"), resembles=BLOCKWISE),
    )
    (mismatch,) = (each for each in inspection.violations if each.code == "contract-mismatch")
    assert BLOCKWISE in mismatch.remedy  # what would accept this tree


def test_b6_08_a_dense_tree_asked_for_as_quantized_and_the_other_way_round(tmp_path: Path) -> None:
    unquantized = judge(tmp_path, bf16("w.weight", 256, 384), contract=BLOCKWISE)
    found = ("plain.bf16@1", "1 unquantized tensors")
    assert_refused(unquantized, Fault("contract-mismatch", TREE, BLOCKWISE, found, resembles="plain.bf16@1"))
    assert f"tensorhub produce SRC DST --to {BLOCKWISE}" in unquantized.violations[0].remedy
    rowwise = judge(tmp_path, {"w.weight": ("F8_E4M3", (256, 384)), "w.weight_scale": ("F32", (256,))}, contract=BLOCKWISE)
    (other,) = (each for each in rowwise.violations if each.code == "contract-mismatch")
    assert f"Accept {ROWWISE}, or" in other.remedy  # not a contract of the same bytes that nothing here reads
    assert f"tensorhub produce ORIGINAL DST --to {BLOCKWISE}" in other.remedy
    quantized = judge(tmp_path, unit("w", 256, 384), FP8, contract="plain.bf16@1")
    assert {"declaration-mismatch", "contract-mismatch", "weight-dtype"} <= set(quantized.codes), why(quantized)


def test_the_short_way_raises_what_the_long_way_lists(tmp_path: Path) -> None:
    good = judge(tmp_path, unit("w", 256, 384), FP8)
    assert inspect_hf_fp8_blockwise(Path(good.path)).contract == BLOCKWISE
    bad = judge(tmp_path, {**unit("w", 256, 384), **TO_Q}, FP8, contract=BLOCKWISE)
    with pytest.raises(Refusal) as caught:
        inspect_hf_fp8_blockwise(Path(bad.path))
    assert caught.value.violations == bad.violations
    assert caught.value.nearest == BLOCKWISE
    assert caught.value.retryable is False


def test_the_grid_arithmetic_of_these_tests_is_the_one_of_published_models() -> None:
    assert blocks((576, 7168)) == (5, 56)
    assert blocks((50277, 256)) == (393, 2)
    assert blocks((8, 512, 256)) == (8, 4, 2)

"""The lists of modules that were not converted: every list and every entry is looked at, and none changes a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trees import BLOCKWISE, Fault, Tree, assert_accepted, assert_refused, bf16, fp8_config, judge, unit

TREE: Tree = {**bf16("lm_head.weight", 512, 256), **unit("model.mlp.gate_proj", 512, 256)}
UNIT = "model.mlp.gate_proj.weight"


def where(entry: str) -> str:
    return f"config.json: quantization_config: {entry}"


@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "modules_to_not_quantize"])
def test_a_list_counts_by_whatever_name_a_producer_gives_it(key: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(**{key: ["lm_head", "visual"]}))
    assert_accepted(inspection, BLOCKWISE, 1)
    report = inspection.exclusions
    assert (report.entries, report.matched, report.unmatched, report.unlisted) == (2, 1, ("visual",), ())


def test_several_lists_count_together_and_an_entry_of_two_of_them_once(tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(ignore=["lm_head", "visual"], exclude_modules=["lm_head", "audio"]))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert (inspection.exclusions.entries, inspection.exclusions.unmatched) == (3, ("visual", "audio"))


def test_a_list_that_is_no_list_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(modules_to_not_convert="lm_head", ignore=["lm_head"]))
    assert_refused(inspection, Fault("declaration-invalid", where("modules_to_not_convert"), "a list of module names", "'lm_head'"))
    assert inspection.exclusions.matched == 1


def test_every_invalid_pattern_is_listed_and_those_after_it_are_evaluated(tmp_path: Path) -> None:
    inspection = judge(tmp_path, TREE, fp8_config(ignore=["re:(", "re:lm_head", "re:["]))
    assert_refused(inspection, Fault("declaration-invalid", where("re:(")), Fault("declaration-invalid", where("re:[")))
    assert inspection.exclusions.matched == 1


def test_a_pattern_is_matched_from_the_beginning_of_a_module(tmp_path: Path) -> None:
    """As `re.match` does, by which compressed-tensors means it; a literal is a run of segments wherever it stands."""
    for entry, covered in (("re:mlp.gate", False), ("re:model.mlp.gate", True), ("re:.*mlp.gate", True), ("re:model", True)):
        report = judge(tmp_path, TREE, fp8_config(ignore=[entry])).exclusions
        assert report.contradicted == (((entry, UNIT),) if covered else ()), entry
        assert report.unmatched == (() if covered else (entry,)), entry


def test_an_entry_may_name_a_parameter_that_is_neither_weight_nor_bias(tmp_path: Path) -> None:
    tree: Tree = {**TREE, "model.moe.correction": ("F32", (8,)), "model.moe.router": ("BF16", (8, 256))}
    entries = ["lm_head", "correction", "moe.router", "rout", "weight", "moe.correction.bias"]
    report = judge(tmp_path, tree, fp8_config(ignore=entries)).exclusions
    assert (report.matched, report.unmatched, report.unlisted) == (3, ("rout", "weight", "moe.correction.bias"), ())
    stack: Tree = {"model.experts.up": ("F8_E4M3", (2, 128, 128)), "model.experts.up_scale_inv": ("F32", (2, 1, 1))}
    contradicted = judge(tmp_path, {**TREE, **stack}, fp8_config(ignore=["lm_head", "experts.up"])).exclusions.contradicted
    assert contradicted == (("experts.up", "model.experts.up"),)


def test_the_root_of_a_model_may_stand_before_what_the_files_name_without_it(tmp_path: Path) -> None:
    tree: Tree = {**TREE, **bf16("vision_tower.layers.0.q_proj.weight", 256, 256), **unit("text.vision_tower.q_proj", 256, 256)}
    for entry, matched in (("model.vision_tower", 2), ("vision_tower", 2), ("models.vision_tower", 1), ("model.q_proj", 1)):
        report = judge(tmp_path, tree, fp8_config(ignore=["lm_head", entry])).exclusions
        assert report.matched == matched, entry
        assert report.contradicted == ((("vision_tower", "text.vision_tower.q_proj.weight"),) if entry == "vision_tower" else ())


def test_one_segment_is_a_name_at_any_depth_and_several_want_their_beginning(tmp_path: Path) -> None:
    tree: Tree = {**TREE, **bf16("model.layers.0.moe.gate.weight", 8, 256)}
    for entry, noted_as in (("gate", ()), ("moe.gate", ("moe.gate",)), ("model.layers.0.moe.gate", ())):
        report = judge(tmp_path, tree, fp8_config(ignore=["lm_head", entry])).exclusions
        assert (report.matched, report.by_suffix, report.contradicted) == (2, noted_as, ())


def test_a_pattern_that_is_not_evaluated_is_not_said_to_match_nothing(tmp_path: Path) -> None:
    report = judge(tmp_path, TREE, fp8_config(ignore=["re:(a+)+b", "visual", "lm_head"])).exclusions
    assert (report.not_evaluated, report.unmatched) == (("re:(a+)+b",), ("visual",))
    assert (report.entries, report.matched) == (3, 1)


@pytest.mark.parametrize("length", [1_000, 1_001, 100_000])
def test_a_pattern_longer_than_1000_characters_is_refused(length: int, tmp_path: Path) -> None:
    entry = "re:" + "a" * length
    inspection = judge(tmp_path, TREE, fp8_config(ignore=[entry]))
    if length == 1_000:
        assert_accepted(inspection, BLOCKWISE, 1)
        assert inspection.exclusions.unmatched == (entry,)
    else:
        assert_refused(inspection, Fault("declaration-invalid", where(entry[:80]), "a regular expression", ()))
        assert "longer than 1000 characters" in inspection.violations[0].found


def test_only_dense_matrices_are_said_to_be_unlisted(tmp_path: Path) -> None:
    """A convolution or a vector could not have been quantized, so that nobody has to list it."""
    unquantized: Tree = {"conv.weight": ("BF16", (4, 4, 3)), "norm.weight": ("BF16", (256,)), "head.weight": ("BF16", (512, 256))}
    inspection = judge(tmp_path, {**TREE, **unquantized}, fp8_config(ignore=["lm_head"]))
    assert_accepted(inspection, BLOCKWISE, 1)
    assert inspection.exclusions.unlisted == ("head.weight",)


@pytest.mark.parametrize("config", [None, {}, {"architectures": ["X"]}])
def test_without_a_declaration_there_is_nothing_to_report(config: dict[str, object] | None, tmp_path: Path) -> None:
    inspection = judge(tmp_path, bf16("lm_head.weight", 512, 256), config)
    report = inspection.exclusions
    assert_accepted(inspection, "plain.bf16@1")
    assert (report.entries, report.matched) == (0, 0)
    assert report.contradicted == report.by_suffix == report.unmatched == report.unlisted == report.not_evaluated == ()
    assert not report.violations

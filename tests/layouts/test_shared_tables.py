"""Qwen3.8-Flash-Next-FP8: block FP8, and a table in numbered shards that share one scale, one level up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tests.support.releases.facts import write_release
from tests.support.releases.qwen import QWEN38_FLASH_NEXT_FP8
from tests.support.trees import (
    BLOCKWISE,
    TREE,
    Fault,
    Tree,
    assert_accepted,
    assert_named_without_decoder,
    assert_refused,
    bf16,
    fp8_config,
    judge,
    unit,
    why,
)

SHARED = "qwen.fp8-blockwise-shared-table@1"
TABLE = "model.layers.1.ple.ple_embedding.ngram_embedding"
SCALE = f"{TABLE}.weight_scale"
FP8 = fp8_config()


def table(count: int = 4, scale: tuple[str, tuple[int, ...]] = ("BF16", ()), module: str = TABLE) -> Tree:
    return {**{f"{module}.shard_{each}.weight": ("F8_E4M3", (250, 160)) for each in range(count)}, f"{module}.weight_scale": scale}


BODY = unit("model.layers.0.q", 576, 384, scale="BF16")


@pytest.mark.parametrize("config", [FP8, fp8_config(activation_scheme=...)], ids=["full", "short"])
@pytest.mark.parametrize("scale", [("BF16", (1,)), ("BF16", ()), ("F16", ()), ("F32", (1,))], ids=str)
def test_the_shards_share_the_scale(scale: tuple[str, tuple[int, ...]], config: dict[str, object], tmp_path: Path) -> None:
    """The release's headers have one element of the shape [1]; a report of it says []."""
    inspection = judge(tmp_path, {**BODY, **table(scale=scale), **bf16("norm.weight", 8)}, config)
    assert_named_without_decoder(inspection, SHARED)
    assert inspection.unit_count == 5
    assert inspection.resembles == (SHARED,)


def test_the_accounts_hold_the_scale_once(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, **table()}, FP8)
    groups = inspection.groups
    assert groups is not None
    assert inspection.sidecars == {SCALE, "model.layers.0.q.weight_scale_inv"}
    for number in range(4):
        weight = f"{TABLE}.shard_{number}.weight"
        assert inspection.unit_tensors[weight] == {"weight": weight, "scale": SCALE}
        layout = inspection.layouts[weight]
        assert (layout.form, layout.scale_name, layout.scale_dtype, layout.grid, layout.block) == (
            "table",
            ".weight_scale",
            "BF16",
            (),
            None,
        )
    assert groups.shared == {SCALE: {number: f"{TABLE}.shard_{number}.weight" for number in range(4)}}
    assert not groups.orphans
    assert inspection.layouts["model.layers.0.q.weight"].block == (128, 128)
    units = [name for names in groups.quantized.values() for name in names]
    assert sorted([*units, *inspection.sidecars]) == sorted({**BODY, **table()})


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_the_scale_may_lie_in_another_shard_than_its_weights(shards: int, tmp_path: Path) -> None:
    tree = {**BODY, **table()}
    for order in (1, -1):
        assert_named_without_decoder(judge(tmp_path, dict(list(tree.items())[::order]), FP8, shards=shards), SHARED)


def test_more_than_ten_shards_and_more_than_one_table(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, **table(130), **table(3, module="mtp.ngram")}, FP8)
    assert_named_without_decoder(inspection, SHARED)
    assert inspection.unit_count == 134
    assert inspection.groups is not None
    assert {name: len(weights) for name, weights in inspection.groups.shared.items()} == {SCALE: 130, "mtp.ngram.weight_scale": 3}


def test_block_fp8_says_that_the_scale_is_shared_and_calls_nothing_damaged(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, **table(3)}, FP8, contract=BLOCKWISE)
    shared = [
        Fault("scale-shared", f"{TABLE}.shard_{number}.weight", found="{module}.weight_scale BF16 []", resembles=SHARED)
        for number in range(3)
    ]
    assert_refused(inspection, *shared, Fault("contract-mismatch", TREE, found=SHARED))
    assert all("Restore" not in each.remedy for each in inspection.violations)


def test_without_a_table_it_is_block_fp8_and_asked_for_says_so(tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, BODY, FP8), BLOCKWISE, 1)
    inspection = judge(tmp_path, BODY, FP8, contract=SHARED)
    assert_refused(inspection, Fault("form-missing", expected="table"), Fault("contract-mismatch", found=BLOCKWISE))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({f"{TABLE}.shard_2.weight": None}, f"no {TABLE}.shard_2.weight"),
        ({f"{TABLE}.shard_0.weight": None}, f"no {TABLE}.shard_0.weight"),
        ({f"{TABLE}.shard_1.weight": None, f"{TABLE}.shard_2.weight": None}, "shard_1.weight, no"),
        ({f"{TABLE}.shard_2.weight": ("BF16", (250, 160))}, f"{TABLE}.shard_2.weight is BF16 [250, 160]"),
        ({f"{TABLE}.shard_2.weight": ("U8", (250, 160))}, f"{TABLE}.shard_2.weight is U8 [250, 160]"),
        ({f"{TABLE}.shard_999999999.weight": ("F8_E4M3", (250, 160))}, "and 999,999,992 more"),
    ],
)
def test_a_number_that_is_missing_or_not_quantized_is_named(
    change: dict[str, tuple[str, tuple[int, ...]] | None], found: str, tmp_path: Path
) -> None:
    tree = {name: each for name, each in {**BODY, **table(), **change}.items() if each is not None}
    inspection = judge(tmp_path, tree, FP8)
    integers = [Fault("tensor-unexplained", name) for name, each in change.items() if each is not None and each[0] == "U8"]
    assert_refused(inspection, Fault("number-missing", SCALE, found=found), *integers)


@pytest.mark.parametrize(
    ("extra", "code", "name"),
    [
        ({f"{TABLE}.shard_1.weight_scale": ("BF16", ())}, "scale-ambiguous", f"{TABLE}.shard_1.weight_scale"),
        ({f"{TABLE}.shard_1.weight_scale_inv": ("BF16", (2, 2))}, "scale-ambiguous", f"{TABLE}.shard_1.weight_scale_inv"),
        ({f"{TABLE}.shard_1.input_scale": ("F32", ())}, "sidecar-forbidden", f"{TABLE}.shard_1.input_scale"),
        ({f"{TABLE}.shard_01.weight": ("F8_E4M3", (250, 160))}, "scale-missing", f"{TABLE}.shard_01.weight"),
        ({f"{TABLE}.shard_x.weight": ("F8_E4M3", (250, 160))}, "scale-missing", f"{TABLE}.shard_x.weight"),
        ({f"{TABLE}.part_5.weight": ("F8_E4M3", (250, 160))}, "scale-missing", f"{TABLE}.part_5.weight"),
        ({SCALE: ("BF16", (4,))}, "scale-rank", SCALE),
        ({SCALE: ("BF16", (1, 1))}, "scale-rank", SCALE),
        ({SCALE: ("U8", ())}, "scale-dtype", SCALE),
        ({f"{TABLE}.shard_1.weight": ("F8_E5M2", (250, 160))}, "weight-dtype", f"{TABLE}.shard_1.weight"),
        ({f"{TABLE}.shard_1.weight": ("F8_E4M3", (2, 250, 160))}, "weight-rank", f"{TABLE}.shard_1.weight"),
        ({f"{TABLE}.input_scale": ("BF16", ())}, "scale-orphan", f"{TABLE}.input_scale"),
    ],
)
def test_whatever_else_lies_there_is_refused(extra: Tree, code: str, name: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, **table(), **extra}, FP8)
    assert inspection.contract is None
    assert (code, name) in [(each.code, each.object) for each in inspection.violations], why(inspection)
    assert "contract-without-decoder" not in inspection.codes


def test_a_weight_of_the_modules_own_name_has_the_scale_to_itself(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, **table(), f"{TABLE}.weight": ("F8_E4M3", (250, 160))}, FP8)
    assert inspection.contract is None
    assert inspection.groups is not None
    assert not inspection.groups.shared


def test_a_table_without_its_scale_is_damaged(tmp_path: Path) -> None:
    tree = {name: each for name, each in {**BODY, **table(3)}.items() if name != SCALE}
    inspection = judge(tmp_path, tree, FP8)
    missing = [each.object for each in inspection.violations if each.code == "scale-missing"]
    assert missing == [f"{TABLE}.shard_{number}.weight" for number in range(3)]


def test_many_scales_without_a_weight_take_no_longer_than_the_tree_is_long(tmp_path: Path) -> None:
    tree: Tree = {f"m.{number}.weight_scale": ("F32", ()) for number in range(20_000)}
    tree |= {f"w.shard_{number}.weight": ("F8_E4M3", (8, 8)) for number in range(20_000)}
    inspection = judge(tmp_path, tree, FP8)
    assert inspection.account is not None
    assert inspection.account.of("refused").tensors == 40_000
    assert {"scale-missing", "violations-unlisted"} <= set(inspection.codes)


def test_the_release_in_its_full_geometry(tmp_path: Path) -> None:
    """75,264 matrices of experts with BF16 grids, and 128 shards of an n-gram table that share one scale."""
    inspection = inspect(write_release(QWEN38_FLASH_NEXT_FP8, tmp_path / "flash"))
    assert_named_without_decoder(inspection, SHARED)
    forms = [layout.form for layout in inspection.layouts.values()]
    assert (forms.count("matrix"), forms.count("table")) == (75_264, 128)
    scale = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight_scale"
    assert inspection.groups is not None
    assert {name: len(weights) for name, weights in inspection.groups.shared.items()} == {scale: 128}
    assert len(inspection.sidecars) == 75_264 + 1
    blockwise = inspect(Path(inspection.path), contract=BLOCKWISE)
    assert set(blockwise.codes) == {"scale-shared", "contract-mismatch"}
    assert blockwise.unit_count == 75_264

"""What went wrong elsewhere, as far as layouts go: lessons 7, 10, 12, 13, 26 and 27, and the trees that another reader loads wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tests.support.checkpoint_files import Tensors, shard_name, write_checkpoint, write_index, write_raw, write_sparse
from tests.support.refusals import within
from tests.support.trees import (
    BLOCKWISE,
    ROWWISE,
    TREE,
    Fault,
    Tree,
    assert_accepted,
    assert_refused,
    bf16,
    fp8_config,
    judge,
    noted,
    stacked_unit,
    unit,
    why,
)

FP8 = fp8_config()
BODY = unit("layers.0.mlp.up_proj", 512, 256)
WEIGHT = "layers.0.mlp.up_proj.weight"
SCALE = f"{WEIGHT}_scale_inv"


# Lesson 27: what a verifier accepted. One tree for each, refused by name; the whole tree besides is valid.


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param({SCALE: ("F32", (8, 4))}, Fault("scale-grid", SCALE, "[4, 2]", ("[8, 4]", "64 x 64 blocks")), id="64x64-grid"),
        pytest.param(
            {"layers.1.extra.weight": ("F8_E5M2", (512, 256)), "layers.1.extra.weight_scale_inv": ("F32", (4, 2))},
            Fault("weight-dtype", "layers.1.extra.weight", "F8_E4M3", "F8_E5M2"),
            id="extra-e5m2-weight",
        ),
        pytest.param(
            {"layers.9.q.weight_scale_inv": ("F32", (4, 2))}, Fault("scale-orphan", "layers.9.q.weight_scale_inv"), id="orphan-scale"
        ),
        pytest.param(
            {f"{WEIGHT}_scale": ("F32", (4, 2))},
            Fault("scale-ambiguous", f"{WEIGHT}_scale", "one scale, _scale_inv", "F32 [4, 2]"),
            id="both-scale-leaves",
        ),
        pytest.param(
            {f"{WEIGHT}_scale": ("F32", (512,))},
            Fault("scale-ambiguous", f"{WEIGHT}_scale", "one scale, _scale_inv", "F32 [512]"),
            id="rowwise-and-blockwise-sidecar",
        ),
        pytest.param(
            {"layers.0.mlp.up_proj.input_scale": ("F32", ())},
            Fault("sidecar-forbidden", "layers.0.mlp.up_proj.input_scale", found="F32 []"),
            id="stray-input-scale",
        ),
        pytest.param(
            {"experts.down_proj": ("F8_E4M3", (4, 256, 512))},
            Fault("scale-missing", "experts.down_proj", found="[4, 256, 512]"),
            id="ignored-3d-experts",
        ),
        pytest.param(
            stacked_unit("experts.down_proj", 4, 256, 512) | {"experts.down_proj_scale_inv": ("F32", (4, 4, 2))},
            Fault("scale-grid-transposed", "experts.down_proj_scale_inv", "[4, 2, 4]", "[4, 4, 2]"),
            id="transposed-3d-grid",
        ),
    ],
)
def test_l27_refused_by_name(change: Tensors, fault: Fault, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, BODY, FP8), BLOCKWISE, 1)
    assert_refused(judge(tmp_path, {**BODY, **change}, FP8), fault)


def test_l27_an_undeclared_tree_with_an_orphan_is_consistent_with_nothing(tmp_path: Path) -> None:
    """The units look blockwise, and one scale is left over: nobody is told that a declaration alone would do."""
    inspection = judge(tmp_path, {**BODY, "layers.9.q.weight_scale_inv": ("F32", (4, 2))})
    assert_refused(inspection, Fault("declaration-missing", "quantization_config"), Fault("scale-orphan", "layers.9.q.weight_scale_inv"))
    assert inspection.resembles == (BLOCKWISE,)


@pytest.mark.parametrize(
    ("fmt", "code"),
    [
        ("e5m2", "declaration-mismatch"),
        ("E4M3", "declaration-mismatch"),
        ("float8_e5m2", "declaration-mismatch"),
        (4, "declaration-invalid"),
    ],
)
def test_l27_fmt_is_part_of_the_declaration(fmt: Any, code: str, tmp_path: Path) -> None:
    assert_refused(judge(tmp_path, BODY, fp8_config(fmt=fmt)), Fault(code, "config.json: quantization_config: fmt", "e4m3"))


@pytest.mark.parametrize("fmt", ["e4m3", "float8_e4m3fn", None, ...])
def test_l27_the_spellings_of_e4m3_that_are_published_pass(fmt: Any, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, BODY, fp8_config(fmt=fmt)), BLOCKWISE, 1)


def test_l27_all_of_it_at_once_is_listed_and_not_the_first(tmp_path: Path) -> None:
    tensors = {
        **unit("a", 512, 256),
        "a.weight_scale_inv": ("F32", (64, 64)),
        **unit("b", 512, 256, scale="F64"),
        "c.weight": ("F8_E5M2", (512, 256)),
        "c.weight_scale_inv": ("F32", (4, 2)),
        **unit("d", 512, 256),
        "d.weight_scale": ("F32", (512,)),
        **unit("e", 512, 256),
        "e.input_scale": ("F32", ()),
        "f": ("F8_E4M3", (4, 512, 256)),
        "g.weight_scale_inv": ("F32", (4, 2)),
        **unit("good", 512, 256),
    }
    assert_refused(
        judge(tmp_path, tensors, fp8_config(fmt="e5m2")),
        Fault("declaration-mismatch", "config.json: quantization_config: fmt"),
        Fault("scale-grid", "a.weight_scale_inv", "[4, 2]", "[64, 64]"),
        Fault("scale-dtype", "b.weight_scale_inv"),
        Fault("weight-dtype", "c.weight"),
        Fault("scale-ambiguous", "d.weight_scale"),
        Fault("sidecar-forbidden", "e.input_scale"),
        Fault("scale-missing", "f"),
        Fault("scale-orphan", "g.weight_scale_inv"),
    )


# Lesson 7: every guard has a tree that it lets pass, and no cap flips a verdict.

MUST_PASS = [
    pytest.param(unit("w", 1, 1), id="smallest"),
    pytest.param(unit("w", 128, 128), id="one-block"),
    pytest.param(unit("w", 129, 127), id="one-row-over"),
    pytest.param({**BODY, "a.k_scale": ("F32", ()), "a.v_scale": ("F32", ())}, id="cache-scales"),
    pytest.param({**BODY, "norm.weight": ("BF16", (256,)), "norm.scale": ("F32", (256,))}, id="norm-scale"),
    pytest.param({**BODY, "logit_scale": ("F32", ())}, id="logit-scale"),
    pytest.param({**BODY, "layer_scale.gamma": ("BF16", (256,)), "layer.scale": ("BF16", (1, 256))}, id="layer-scale"),
    pytest.param({**BODY, **bf16("adapter.weight", 16, 256), "adapter.scale": ("F32", ())}, id="scale-beside-a-dense-weight"),
    pytest.param({**BODY, "vision.patch.weight": ("F16", (64, 3, 14, 14)), "rope.inv_freq": ("F32", (64,))}, id="dense-f16-f32"),
    pytest.param({**BODY, "position_ids": ("I64", (1, 512)), "mask": ("BOOL", (4, 4)), "step": ("I32", ())}, id="integers"),
    pytest.param({**BODY, "layers.0.mlp.up_proj.bias": ("BF16", (512,))}, id="bias"),
    pytest.param({**BODY, **unit("weight", 256, 384)}, id="module-called-weight"),
    pytest.param({**BODY, **stacked_unit("moe.gate_proj.weight", 4, 256, 384)}, id="stacked-with-dot-weight"),
]


@pytest.mark.parametrize("tensors", MUST_PASS)
def test_l7_every_guard_lets_these_pass(tensors: Tensors, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, tensors, FP8), BLOCKWISE)


@pytest.mark.parametrize("bad", [None, 0, 1499, 2999])
def test_l7_no_cap_on_units_or_shards_flips_a_verdict(bad: int | None, tmp_path: Path) -> None:
    tensors = {name: entry for number in range(3000) for name, entry in unit(f"layers.{number}.w", 256, 384).items()}
    if bad is not None:
        tensors[f"layers.{bad}.w.weight_scale_inv"] = ("F32", (3, 2))
    inspection = judge(tmp_path, tensors, FP8, shards=40)
    if bad is None:
        assert_accepted(inspection, BLOCKWISE, 3000)
    else:
        assert_refused(inspection, Fault("scale-grid-transposed", f"layers.{bad}.w.weight_scale_inv", "[2, 3]", "[3, 2]"))


def test_l7_no_cap_on_the_list_of_violations(tmp_path: Path) -> None:
    tensors: Tree = {f"layers.{number}.w.weight": ("F8_E4M3", (256, 384)) for number in range(3000)}
    inspection = judge(tmp_path, tensors, FP8, shards=7)
    assert inspection.contract is None
    assert {each.object for each in inspection.violations if each.code == "scale-missing"} == set(tensors)


def test_l7_a_long_list_of_violations_takes_no_longer_than_the_tree_is_long(tmp_path: Path) -> None:
    """20,000 weights without a scale: a look at every tensor for each of them would take minutes."""
    tensors: Tree = {f"layers.{number}.w.weight": ("F8_E4M3", (256, 384)) for number in range(20_000)}
    with within(10):
        inspection = judge(tmp_path, tensors, FP8)
        assert sum(each.code == "scale-missing" for each in inspection.violations) == 10_000
        assert inspection.violations[-1].found.endswith(" more, which are not listed")


def test_l7_the_shard_that_holds_the_fault_is_named(tmp_path: Path) -> None:
    tensors = {**unit("a", 256, 384), **unit("b", 256, 384), "b.weight_scale_inv": ("F32", (3, 2))}
    placement = {name: 2 if name.startswith("b") else 1 for name in tensors}
    placement["b.weight_scale_inv"] = 3
    inspection = judge(tmp_path, tensors, FP8, shards=3, placement=placement)
    assert_refused(inspection, Fault("scale-grid-transposed", "b.weight_scale_inv", shard=shard_name(3, 3)))


@pytest.mark.parametrize("bad_shard", [1, 2])
@pytest.mark.parametrize("named_shard", [1, 2])
@pytest.mark.parametrize("twice", [(WEIGHT,), (SCALE,), (WEIGHT, SCALE)], ids=["weight", "scale", "both"])
def test_l27_of_two_copies_the_one_that_the_index_names_is_judged(
    twice: tuple[str, ...], named_shard: int, bad_shard: int, tmp_path: Path
) -> None:
    """The other copy has another dtype, so that judging it, or both, shows."""
    bad: Tree = {WEIGHT: ("F8_E5M2", (512, 256)), SCALE: ("F64", (4, 2))}
    shards: list[Tree] = [
        {**BODY, "first.weight": ("BF16", (8,))},
        {name: BODY[name] for name in twice} | {"second.weight": ("BF16", (8,))},
    ]
    shards[bad_shard - 1] |= {name: bad[name] for name in twice}
    for number, shard in enumerate(shards, start=1):
        write_sparse(tmp_path / shard_name(number, 2), shard)
    weight_map = {name: shard_name(number, 2) for number, shard in ((2, shards[1]), (1, shards[0])) for name in shard}
    write_index(tmp_path / "model.safetensors.index.json", weight_map | dict.fromkeys(twice, shard_name(named_shard, 2)))
    (tmp_path / "config.json").write_text(json.dumps(FP8))
    inspection = inspect(tmp_path)
    if named_shard == bad_shard:
        codes = {WEIGHT: "weight-dtype", SCALE: "scale-dtype"}
        assert_refused(inspection, *(Fault(codes[name], name, shard=shard_name(bad_shard, 2)) for name in twice))
    else:
        assert_accepted(inspection, BLOCKWISE, 1)
        assert noted(inspection, "in two shards", "the index decides")


# Lesson 10: unreadable is not absent.


@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json", "params.json"])
@pytest.mark.parametrize("content", [b"{", b"", b"[]", b"\xff{}", b'"fp8"', b"null"])
def test_l10_a_configuration_that_cannot_be_read_is_no_absent_one(name: str, content: bytes, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tree", BODY, config=None if name == "config.json" else FP8)
    (folder / name).write_bytes(content)
    inspection = inspect(folder)
    assert inspection.contract is None
    assert inspection.codes == ("config-json",), why(inspection)
    assert inspection.violations[0].object == name


def test_l10_a_link_to_a_configuration_that_is_not_there_is_no_absent_one(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tree", bf16("w.weight", 256, 384))
    (folder / "config.json").symlink_to(tmp_path / "nowhere.json")
    inspection = inspect(folder)
    assert inspection.contract is None  # as plain.bf16@1 it would be accepted without the file
    assert "config.json" in why(inspection)


@pytest.mark.parametrize("declared", ["fp8", [], 8, True, ["fp8"]])
def test_l10_a_declaration_that_is_no_object_is_no_absent_one(declared: Any, tmp_path: Path) -> None:
    inspection = judge(tmp_path, bf16("w.weight", 256, 384), {"quantization_config": declared})
    assert_refused(inspection, Fault("declaration-invalid", "config.json: quantization_config", "an object"))


@pytest.mark.parametrize("listed", ["lm_head", {"lm_head": 1}, ["lm_head", 3], [["lm_head"]], 0])
def test_l10_a_module_list_that_cannot_be_read_is_no_absent_one(listed: Any, tmp_path: Path) -> None:
    inspection = judge(tmp_path, BODY, fp8_config(modules_to_not_convert=listed))
    assert_refused(inspection, Fault("declaration-invalid", "config.json: quantization_config: modules_to_not_convert", "a list"))


def test_l10_an_unreadable_shard_does_not_leave_a_dense_tree_behind(tmp_path: Path) -> None:
    """The FP8 tensors are in the shard that cannot be read; the other one is all BF16."""
    tensors = {**bf16("embed.weight", 256, 384), **BODY}
    folder = write_checkpoint(tmp_path / "tree", tensors, shards=2, placement={"embed.weight": 1, **dict.fromkeys(BODY, 2)}, index=False)
    (folder / shard_name(2, 2)).write_bytes(b"\x00" * 64)
    inspection = inspect(folder)
    assert inspection.contract is None
    assert shard_name(2, 2) in why(inspection)


def test_l10_a_key_that_stands_twice_in_a_declaration_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tree", BODY)
    text = json.dumps(FP8).replace('"fmt"', '"weight_block_size": [64, 64], "fmt"')
    (folder / "config.json").write_text(text)
    assert_refused(
        inspect(folder), Fault("declaration-invalid", "config.json: quantization_config: weight_block_size", found="more than once")
    )


# Lesson 12: mixed is a value, and no count decides.


@pytest.mark.parametrize("others", [1, 3, 99])
def test_l12_one_unit_of_another_layout_makes_a_tree_mixed(others: int, tmp_path: Path) -> None:
    tensors = {name: entry for number in range(others) for name, entry in unit(f"layers.{number}.w", 256, 384).items()}
    tensors |= {"head.w.weight": ("F8_E4M3", (256, 384)), "head.w.weight_scale": ("F32", (256,))}
    inspection = judge(tmp_path, tensors, FP8)
    table = (f"layers: {others} x F8_E4M3", BLOCKWISE, "head.w: 1 x F8_E4M3", ROWWISE)
    foreign = Fault("scale-name-foreign", "head.w.weight_scale", found="one for each row", resembles=ROWWISE)
    assert_refused(inspection, Fault("layout-mixed", TREE, found=table), foreign)


@pytest.mark.parametrize("blockwise", [1, 3, 99])
def test_l12_the_same_with_the_majority_on_the_other_side(blockwise: int, tmp_path: Path) -> None:
    """Undeclared, so that counts would be the only thing left to go by."""
    tensors = {
        f"layers.{number}.w.weight{suffix}": entry
        for number in range(5)
        for suffix, entry in (("", ("F8_E4M3", (256, 384))), ("_scale", ("F32", (256,))))
    }
    tensors |= {name: entry for number in range(blockwise) for name, entry in unit(f"mtp.{number}.w", 256, 384).items()}
    inspection = judge(tmp_path, tensors)
    (mixed,) = (each for each in inspection.violations if each.code == "layout-mixed")
    assert f"layers: 5 x F8_E4M3 rank 2 with .weight_scale F32 rank 1 ({ROWWISE})" in mixed.found
    assert f"mtp: {blockwise} x F8_E4M3 rank 2 with _scale_inv F32 rank 2 ({BLOCKWISE})" in mixed.found
    assert {ROWWISE, BLOCKWISE} <= set(inspection.resembles)


@pytest.mark.parametrize("majority", [1, 2, 50])
def test_l12_dense_matrices_of_two_dtypes_are_mixed(majority: int, tmp_path: Path) -> None:
    tensors: Tree = {f"layers.{number}.weight": ("BF16", (256, 384)) for number in range(majority)}
    tensors["head.weight"] = ("F16", (256, 384))
    inspection = judge(tmp_path, tensors)
    assert_accepted(inspection, "plain.mixed@1", 0)
    assert f"dense: every matrix is BF16 ({majority}) or F16 (1), and nothing is quantized or scaled" in inspection.proved
    asked = judge(tmp_path, tensors, contract="plain.bf16@1")
    assert_refused(asked, Fault("unquantized-dtype", "head.weight", "BF16", "F16 [256, 384]"))


def test_l12_one_fp8_tensor_among_many_dense_ones_is_not_dense(tmp_path: Path) -> None:
    tensors: Tree = {f"layers.{number}.weight": ("BF16", (256, 384)) for number in range(200)}
    inspection = judge(tmp_path, {**tensors, "head.weight": ("F8_E4M3", (256, 384))}, contract="plain.bf16@1")
    assert inspection.contract is None
    assert any(each.object == "head.weight" and each.code == "weight-dtype" for each in inspection.violations), why(inspection)
    scaled = judge(tmp_path, {**tensors, **unit("head", 256, 384)})
    assert scaled.codes == ("declaration-missing", "layout-undeclared"), why(scaled)
    assert scaled.resembles == (BLOCKWISE,)


# Lesson 13: an unknown dtype counts for nothing and refuses.


@pytest.mark.parametrize("dtype", ["F8_E4M3FN", "f8_e4m3", "F8_E9M9", "bfloat16", "bf16", "torch.float8_e4m3fn", "", "F8_E4M3 "])
def test_l13_an_unknown_dtype_refuses(dtype: str, tmp_path: Path) -> None:
    entries = {
        "w.weight": {"dtype": dtype, "shape": [256, 384], "data_offsets": [0, 98304]},
        "w.weight_scale_inv": {"dtype": "F32", "shape": [2, 3], "data_offsets": [98304, 98328]},
    }
    (tmp_path / "config.json").write_text(json.dumps(FP8))
    write_raw(tmp_path / "model.safetensors", json.dumps(entries).encode(), 98328)
    inspection = inspect(tmp_path)
    assert inspection.codes == ("dtype-unknown",), why(inspection)
    (violation,) = inspection.violations
    assert violation.object == "w.weight"
    assert dtype in violation.found


@pytest.mark.parametrize("dtype", ["F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E5M2", "F8_E8M0", "U8", "I8"])
def test_l13_a_known_dtype_of_8_bits_is_not_thereby_e4m3(dtype: str, tmp_path: Path) -> None:
    tensors: Tree = {"w.weight": (dtype, (256, 384)), "w.weight_scale_inv": ("F32", (2, 3)), **BODY}
    inspection = judge(tmp_path, tensors, FP8)
    dtypes = [each for each in inspection.violations if each.code == "weight-dtype"]
    assert [(each.object, each.expected, each.found) for each in dtypes] == [("w.weight", "F8_E4M3", dtype)], why(inspection)


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_l13_floats_below_8_bits_are_quantized_tensors_too(dtype: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**BODY, "w.weight": (dtype, (256, 384))}, FP8)
    assert_refused(inspection, Fault("weight-dtype", "w.weight", "F8_E4M3", dtype), Fault("scale-missing", "w.weight"))


@pytest.mark.parametrize("dtype", ["F64", "F8_E8M0"])
def test_l13_a_dense_tree_in_a_dtype_that_no_contract_admits(dtype: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"w.weight": (dtype, (256, 384))})
    assert inspection.contract is None
    assert any(each.object == "w.weight" for each in inspection.violations), why(inspection)


# Lesson 26: the declared block, always.


@pytest.mark.parametrize(
    ("weight", "grid", "inferred"),
    [
        ((576, 7168), (5, 56), 116),
        ((1000, 256), (8, 2), 125),
        ((120, 256), (1, 2), 120),
        ((2112, 7168), (17, 56), 125),
        ((448, 256), (4, 2), 112),
    ],
)
def test_l26_the_block_is_128_whatever_the_shapes_would_say(
    weight: tuple[int, ...], grid: tuple[int, ...], inferred: int, tmp_path: Path
) -> None:
    assert -(-weight[0] // grid[0]) == inferred  # what an inference would take
    inspection = judge(tmp_path, {"w.weight": ("F8_E4M3", weight), "w.weight_scale_inv": ("F32", grid)}, FP8)
    assert_accepted(inspection, BLOCKWISE, {"w.weight": grid})
    (found,) = inspection.units
    assert found.layout.block == (128, 128)


@pytest.mark.parametrize("block", [[64, 64], [64, 128], [128, 64], [116, 128], [125, 128], [256, 256], [1, 128]])
def test_l26_a_tree_whose_grids_fit_another_declared_block_is_another_layout(block: list[int], tmp_path: Path) -> None:
    weight = (576, 1024)
    grid = tuple(-(-size // each) for size, each in zip(weight, block, strict=True))
    tensors: Tree = {"w.weight": ("F8_E4M3", weight), "w.weight_scale_inv": ("F32", grid)}
    where, other = "config.json: quantization_config", judge(tmp_path, tensors, fp8_config(weight_block_size=block))
    if grid == (5, 8):  # what blocks of 128 ask for too: the bytes are as ever, and the declaration is not
        assert_refused(other, Fault("declaration-mismatch", f"{where}: weight_block_size", "[128, 128]", str(block)))
        return
    # Declaration and bytes agree on a layout that no contract describes: it is damaged in nothing.
    assert_refused(other, Fault("declaration-unknown", where, found=(f"weight_block_size={block}", str(list(grid)))))
    assert other.nearest is None
    grids = Fault("scale-grid", "w.weight_scale_inv", "[5, 8] for weight [576, 1024]", str(list(grid)))
    assert_refused(judge(tmp_path, tensors, FP8), grids)  # and where 128 is declared, the grid of another block is refused all the same


# The trees of a differential experiment: what another library loads without a word, and what each of them is.

DOWN = "model.layers.1.mlp.down_proj.weight"
DOWN_SCALE = f"{DOWN}_scale_inv"


def tiny_llama(intermediate: int = 512, scale: str = "F32") -> Tree:
    """The geometry of the experiment: 2 layers, hidden size 256, 4 heads of 64, 2 of them for keys and values."""
    tree = {**bf16("model.embed_tokens.weight", 256, 256), **bf16("model.norm.weight", 256), **bf16("lm_head.weight", 256, 256)}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        tree |= {**bf16(f"{prefix}.input_layernorm.weight", 256), **bf16(f"{prefix}.post_attention_layernorm.weight", 256)}
        for module, shape in {
            "self_attn.q_proj": (256, 256),
            "self_attn.k_proj": (128, 256),
            "self_attn.v_proj": (128, 256),
            "self_attn.o_proj": (256, 256),
            "mlp.gate_proj": (intermediate, 256),
            "mlp.up_proj": (intermediate, 256),
            "mlp.down_proj": (256, intermediate),
        }.items():
            tree |= unit(f"{prefix}.{module}", *shape, scale=scale)
    return tree


def without(tree: Tree, *names: str) -> Tree:
    return {name: entry for name, entry in tree.items() if name not in names}


def as_rowwise(tree: Tree) -> Tree:
    """Every grid replaced by a rowwise scale under its own sidecar."""
    weights = {name: entry for name, entry in tree.items() if not name.endswith("_scale_inv")}
    scales: Tree = {f"{name}_scale": ("F32", shape[:1]) for name, (dtype, shape) in weights.items() if dtype == "F8_E4M3"}
    return weights | scales


LLAMA = tiny_llama()
DECLARED = fp8_config(fmt=..., modules_to_not_convert=["lm_head"])


@pytest.mark.parametrize(
    "tree",
    [
        pytest.param(tiny_llama(*case), id=name)
        for name, case in {"good": (), "bf16-scales": (512, "BF16"), "448-rows": (448,), "576-rows": (576,)}.items()
    ],
)
def test_experiment_accepted(tree: Tree, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, tree, DECLARED), BLOCKWISE, 14)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        pytest.param(
            LLAMA | {DOWN_SCALE: ("F32", (4, 2))},
            Fault("scale-grid-transposed", DOWN_SCALE, "[2, 4]", ("[4, 2]", "transposed")),
            id="transposed",
        ),
        pytest.param(
            LLAMA | {DOWN_SCALE: ("F32", (256, 1))},
            Fault("scale-grid", DOWN_SCALE, "[2, 4]", ("[256, 1]", "one for each row")),
            id="rows-and-1",
        ),
        pytest.param(
            LLAMA | {DOWN_SCALE: ("F32", (256,))},
            Fault("scale-rank", DOWN_SCALE, "[2, 4]", ("[256]", "one for each row")),
            id="rank-1-rows",
        ),
        pytest.param(LLAMA | {DOWN_SCALE: ("F32", (8,))}, Fault("scale-rank", DOWN_SCALE, "[2, 4]", ("[8]", "rank 1")), id="rank-1-grid"),
        pytest.param(without(LLAMA, DOWN_SCALE), Fault("scale-missing", DOWN, found="F8_E4M3 [256, 512]"), id="no-scale"),
        pytest.param(
            LLAMA | {f"{DOWN}_scale": ("F32", (256,))},
            Fault("scale-ambiguous", f"{DOWN}_scale", "_scale_inv", "F32 [256]"),
            id="both-leaves",
        ),
        pytest.param(
            LLAMA | {DOWN_SCALE: ("F32", (4, 8))}, Fault("scale-grid", DOWN_SCALE, "[2, 4]", ("[4, 8]", "64 x 64")), id="64x64-grid"
        ),
        pytest.param(LLAMA | {DOWN: ("F8_E5M2", (256, 512))}, Fault("weight-dtype", DOWN, "F8_E4M3", "F8_E5M2"), id="e5m2"),
        pytest.param(LLAMA | {DOWN: ("BF16", (256, 512))}, Fault("scale-orphan", DOWN_SCALE, DOWN, ("BF16", "not quantized")), id="orphan"),
    ],
)
def test_experiment_refused(tree: Tree, fault: Fault, tmp_path: Path) -> None:
    assert_refused(judge(tmp_path, tree, DECLARED), fault)


def test_experiment_a_rowwise_tree_under_a_blockwise_declaration(tmp_path: Path) -> None:
    tree = as_rowwise(LLAMA)
    scales = [name for name in tree if name.endswith("_scale")]
    assert len(scales) == 14
    faults = [Fault("scale-name-foreign", name, "_scale_inv", "one for each row", resembles=ROWWISE) for name in scales]
    assert_refused(judge(tmp_path, tree, DECLARED), *faults, Fault("layout-undeclared", TREE, found=ROWWISE, resembles=ROWWISE))
    assert_accepted(judge(tmp_path, tree), ROWWISE, 14)  # and without the wrong declaration it is what it is


def test_experiment_a_declared_block_of_64_over_bytes_of_128(tmp_path: Path) -> None:
    inspection = judge(tmp_path, LLAMA, fp8_config(weight_block_size=[64, 64]))
    assert set(inspection.codes) == {"declaration-mismatch", "declaration-contradicts-grid"}, why(inspection)
    grids = {each.object: each for each in inspection.violations if each.code == "declaration-contradicts-grid"}
    down = next(each for name, each in grids.items() if name.endswith("down_proj.weight_scale_inv"))
    assert "[4, 8] for weight [256, 512]" in down.expected
    assert down.found == "[2, 4]"


def test_experiment_without_a_declaration(tmp_path: Path) -> None:
    inspection = judge(tmp_path, LLAMA, {"model_type": "llama"})
    assert_refused(
        inspection,
        Fault("declaration-missing", "quantization_config"),
        Fault("layout-undeclared", TREE, found=BLOCKWISE, resembles=BLOCKWISE),
    )

"""Which tensors belong together, and which are ordinary: each tensor counts exactly once, and none hides behind its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing.sample_units import sample_units, unquantized_tensors, write_tree
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
    stacked_unit,
    unit,
)

NVFP4: Tree = {"w.weight": ("U8", (576, 192)), "w.weight_scale": ("F8_E4M3", (576, 24)), "w.weight_scale_2": ("F32", ())}
DECLARED_NVFP4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
STORAGE = "cozy.fp8-storage@1"


def counted(inspection: Inspection) -> list[str]:
    """Return every tensor name in the groups, as often as it stands there; a sidecar by its weight and its name."""
    groups = inspection.groups
    assert groups is not None
    stems = {"_scale_inv": "", ".weight_scale": ".weight", ".weight_scale_2": ".weight", ".input_scale": ".weight"}
    names = [*groups.cache_scales, *groups.unquantized, *groups.other, *(name for name, _ in groups.orphans)]
    for geometry, primaries in groups.quantized.items():
        for name in primaries:
            names += [name, *(name.removesuffix(stems[sidecar.name]) + sidecar.name for sidecar in geometry.sidecars)]
    return sorted(names)


EVERYTHING: Tree = {
    **unit("a", 512, 256),
    **stacked_unit("experts.down_proj", 4, 256, 512),
    **{name.replace("w.", "packed.", 1): entry for name, entry in NVFP4.items()},
    "packed.input_scale": ("F32", ()),
    "bare.weight": ("F8_E4M3", (64, 64)),
    "orphan.weight_scale_inv": ("F32", (1, 1)),
    "dense.weight_scale": ("F32", (64,)),
    **bf16("dense.weight", 64, 64),
    "norm.weight": ("F32", (64,)),
    "norm.scale": ("F32", (64,)),
    "odd.scale": ("F8_E4M3", (64,)),
    "table.scale": ("I32", (64,)),
    "layers.0.k_scale": ("F32", ()),
    "position_ids": ("I64", (1, 77)),
    "ids.weight": ("I32", (4, 4)),
    "codes_blocks": ("U8", (2, 4, 1, 16)),
}


@pytest.mark.parametrize("shards", [1, 2, 3, len(EVERYTHING)])
@pytest.mark.parametrize("order", [1, -1])
def test_every_tensor_is_in_the_groups_exactly_once(shards: int, order: int, tmp_path: Path) -> None:
    tensors = dict(list(EVERYTHING.items())[::order])
    assert counted(judge(tmp_path, tensors, fp8_config(), shards=shards)) == sorted(EVERYTHING)


def test_the_units_of_a_tree_are_not_counted_among_its_other_tensors(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**unit("a", 512, 256), "position_ids": ("I64", (1, 77))}, fp8_config())
    assert_accepted(inspection, BLOCKWISE, 1)
    assert inspection.groups is not None
    assert list(inspection.groups.other) == ["position_ids"]


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("position_ids", ("I64", (1, 77))),  # neither the dtype nor the name of a packed weight
        ("causal_mask", ("U8", (4, 4))),  # its dtype and its rank
        ("spiece_model", ("U8", (4,))),  # its dtype
    ],
)
def test_ordinary_integers_beside_packed_weights_ask_for_no_scale(name: str, entry: tuple[str, tuple[int, ...]], tmp_path: Path) -> None:
    assert_named_without_decoder(judge(tmp_path, {**NVFP4, name: entry}, DECLARED_NVFP4), "modelopt.nvfp4@1")


def test_a_packed_weight_that_lost_its_sidecars_is_missed(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**NVFP4, "v.weight": ("U8", (576, 192))}, DECLARED_NVFP4)
    scales = ("v.weight_scale F8_E4M3 [out, in/16]", "v.weight_scale_2 F32 []")
    assert_refused(inspection, Fault("scale-missing", "v.weight", scales, "U8 [576, 192]"))


def test_fp8_values_under_the_name_of_a_scale_are_never_taken_for_a_plain_tree(tmp_path: Path) -> None:
    """Norms end in `.scale`, so that without a weight beside it the name says nothing; the dtype does."""
    inspection = judge(tmp_path, {**bf16("w.weight", 64, 64), "norm.scale": ("F8_E4M3", (64,))})
    assert_accepted(inspection, STORAGE, 1)
    assert list(inspection.layouts) == ["norm.scale"]
    assert judge(tmp_path, {**bf16("w.weight", 64, 64), "norm.scale": ("F8_E4M3", (64,))}, contract="plain.bf16@1").contract is None


def test_a_scale_beside_a_dense_weight_is_an_orphan_although_packed_bytes_lie_there_too(tmp_path: Path) -> None:
    """Whether the scale is the unquantized weight's or that of the packed one is not for a reader to guess."""
    tensors = {**bf16("a.weight", 64, 32), "a.weight_packed": ("U8", (64, 16)), "a.weight_scale": ("F8_E4M3", (64, 2))}
    inspection = judge(tmp_path, tensors)
    orphan = next(each for each in inspection.violations if each.code == "scale-orphan")
    assert orphan.object == "a.weight_scale"
    assert "beside a.weight, which is BF16 and not quantized" in orphan.found


@pytest.mark.parametrize("dtype", ["I32", "I16", "I64", "BOOL"])
def test_integers_of_more_than_a_byte_are_not_packed_by_a_scale_beside_them(dtype: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**bf16("b.weight", 64, 32), "a.weight": (dtype, (64, 32)), "a.weight_scale": ("F32", (64,))})
    assert_refused(inspection, Fault("tensor-unexplained", "a.weight", found=f"{dtype} [64, 32]"))
    assert inspection.groups is not None
    assert not inspection.groups.quantized
    assert list(inspection.groups.other) == ["a.weight"]


@pytest.mark.parametrize("scale", [("F32", ()), ("BF16", (64,)), ("F16", (1,))])
@pytest.mark.parametrize("beside", [{}, {"position_ids": ("I64", (1, 77))}])
def test_scales_of_a_cache_alone_are_no_weights(scale: tuple[str, tuple[int, ...]], beside: Tree, tmp_path: Path) -> None:
    """Nothing judges them, so that nothing would be wrong with the tree, and nothing proved."""
    tensors: Tree = {"layers.0.k_scale": scale, "layers.0.v_scale": scale, **beside}
    for contract in (None, "plain.bf16@1"):
        inspection = judge(tmp_path, tensors, contract=contract)
        assert_refused(inspection, Fault("layout-unknown", TREE, found=f"{len(tensors)} tensors of other kinds"))
    assert_accepted(judge(tmp_path, {**tensors, **bf16("w.weight", 64, 64)}), "plain.bf16@1")


def test_a_bias_is_no_scale_by_another_name(tmp_path: Path) -> None:
    """Beside a weight without a scale, its bias is not offered as the scale; a tensor of a name that nobody knows is."""
    weight = {"a.weight": ("F8_E4M3", (256, 256))}
    alone = judge(tmp_path / "alone", {**weight, "a.bias": ("BF16", (256,))}, fp8_config())
    assert [each.code for each in alone.violations if each.code.startswith("scale")] == ["scale-missing"]
    beside = judge(tmp_path / "beside", {**weight, "a.bias": ("BF16", (256,)), "a.factor": ("F32", (256,))}, fp8_config())
    scales = [(each.code, each.found) for each in beside.violations if each.code.startswith("scale")]
    assert scales == [("scale-name-unknown", "only factor beside it")]


def test_optional_tensors_are_those_of_a_unit_that_are_there(tmp_path: Path) -> None:
    contracts = load_registry().contracts.values()
    contract = next(each for each in contracts for form in each.form if any(tensor.optional for tensor in form.tensors.values()))
    form = next(each for each in contract.form if any(tensor.optional for tensor in each.tensors.values()))
    unit_of_it = next(unit for unit in sample_units(contract) if unit.form == form.name)
    optional = {role for role, tensor in form.tensors.items() if tensor.optional}
    tensors = {unit_of_it.names[role]: tensor for role, tensor in unit_of_it.tensors.items() if role not in optional}
    inspection = inspect(write_tree(tmp_path, contract, {**unquantized_tensors(contract), **tensors}), contract=contract.handle)
    (found,) = inspection.units
    assert set(inspection.tensors_of(found)) == set(form.tensors) - optional

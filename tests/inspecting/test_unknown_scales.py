"""FP8 whose scale has a name that no contract lists is no FP8 without a scale: whatever could be one is refused, by place and size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trees import BLOCKWISE, Tree, assert_accepted, bf16, fp8_config, judge, unit, why

STORAGE = "cozy.fp8-storage@1"
W: Tree = {"layers.0.q_proj.weight": ("F8_E4M3", (512, 256))}

NAMES = (
    "weight_scales", "weights_scaling_factor", "weight_scale_1", "weight._scale", "scales", "weight_scaling_factor", "wscales",
    "weight_amax", "dequant_scale", "amax", "absmax", "s", "w_inv", "factor", "input_amax", "act_scale", "activation_scaling_factor",
)  # fmt: skip

SHAPES = {
    "one element": ("F32", ()),
    "one element of a list": ("BF16", (1,)),
    "rows": ("F32", (512,)),
    "rows in a column": ("F16", (512, 1)),
    "columns": ("F32", (256,)),
    "blocks of 128": ("F32", (4, 2)),
    "blocks of 32 in a row": ("BF16", (512, 8)),
    "flat blocks": ("F32", (2048,)),
    "exponents": ("F8_E8M0", (512, 8)),
    "exponents as bytes": ("U8", (512, 8)),
    "an exponent": ("U8", (1,)),
    "rows of 64 bits": ("F64", (512,)),
}


@pytest.mark.parametrize("name", NAMES)
def test_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**W, f"layers.0.q_proj.{name}": ("F32", (512,))})
    assert inspection.contract is None
    assert any(f"layers.0.q_proj.{name}" in (each.object, each.found) or name in each.found for each in inspection.violations), why(
        inspection
    )


@pytest.mark.parametrize(("dtype", "shape"), SHAPES.values(), ids=SHAPES)
def test_whatever_its_shape(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**W, "layers.0.q_proj.x": (dtype, shape)})
    assert inspection.contract is None
    assert "layers.0.q_proj.x" in {each.object for each in inspection.violations}, why(inspection)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (512,), (4, 2)])
def test_one_verdict_beside_a_sound_unit_too(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**unit("layers.0.q_proj", 512, 256), f"layers.0.q_proj.{name}": ("F32", shape)}, fp8_config())
    assert inspection.contract is None, f"{name} is beside a weight, and nothing says what it is"


STACKS: dict[str, Tree] = {
    "after its name": {"experts.w13": ("F8_E4M3", (8, 64, 32)), "experts.w13_sc": ("F32", (8,))},
    "with other words": {"experts.gate_up_proj": ("F8_E4M3", (8, 64, 32)), "experts.gate_up_scale": ("F32", (8, 64, 1))},
    "with no words": {"experts.gate_up_proj": ("F8_E4M3", (8, 64, 32)), "experts.scales": ("F32", (8,))},
    "below it": {"experts.down.weight._data": ("F8_E4M3", (64, 32)), "experts.down.weight._scale": ("F32", (64, 1))},
    "after a colon": {"down.weight:_data": ("F8_E4M3", (64, 32)), "down.weight:_scale": ("F32", (64, 1))},
}


@pytest.mark.parametrize("tree", STACKS.values(), ids=STACKS)
def test_beside_a_bare_parameter(tree: Tree, tmp_path: Path) -> None:
    inspection = judge(tmp_path, tree)
    assert inspection.contract is None, "the scale would be dropped"
    scale = list(tree)[1]
    assert any(scale in (each.object, each.found) or scale.rpartition(".")[2] in each.found for each in inspection.violations), why(
        inspection
    )


TRT: Tree = {
    "transformer.layers.0.attention.dense.weight": ("F8_E4M3", (64, 64)),
    "transformer.layers.0.attention.dense.weights_scaling_factor": ("F32", (1,)),
    "transformer.vocab_embedding.weight": ("F16", (128, 64)),
}
ACTIVATION: Tree = {"transformer.layers.0.attention.dense.activation_scaling_factor": ("F32", (1,))}
CACHE: Tree = {"transformer.layers.0.attention.kv_cache_scaling_factor": ("F32", (1,))}
DECLARED = {"architecture": "LlamaForCausalLM", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}


@pytest.mark.parametrize("more", [{}, ACTIVATION, {**ACTIVATION, **CACHE}], ids=["weight", "static", "cache"])
@pytest.mark.parametrize("config", [DECLARED, {}, None], ids=["declared", "undeclared", "no configuration"])
def test_tensorrt_llm(more: Tree, config: dict[str, Any] | None, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**TRT, **more}, config)
    assert inspection.contract is None
    if config is DECLARED:
        assert inspection.codes == ("declaration-unknown",), why(inspection)
        assert 'quant_algo="FP8"' in inspection.violations[0].found
    else:
        named = {each.object for each in inspection.violations}
        assert {name for name in {**TRT, **more} if "dense" in name and "scaling" in name} <= named, why(inspection)


#: As raw-cast files of diffusion models have them.
NEIGHBOURS: dict[str, Tree] = {
    "a bias": bf16("layers.0.q_proj.bias", 512),
    "a bias of F32": {"layers.0.q_proj.bias": ("F32", (512,))},
    "a norm": {"layers.0.query_norm.scale": ("F8_E4M3", (128,)), "layers.1.query_norm.scale": ("BF16", (128,))},
    "a temperature": {"logit_scale": ("F32", ()), "text_projection": ("F8_E4M3", (64, 64)), "positional_embedding": ("F8_E4M3", (77, 64))},
    "a batch norm": {
        "bn.weight": ("F8_E4M3", (64,)),
        "bn.running_mean": ("F32", (64,)),
        "bn.running_var": ("F32", (64,)),
        "bn.num_batches_tracked": ("I64", ()),
    },
    "an attention without modules": {"attn.in_proj_weight": ("F8_E4M3", (192, 64)), "attn.in_proj_bias": ("BF16", (192,))},
    "a table of modulations": bf16("layers.0.scale_shift_table", 6, 64),
    "an adapter's module below": bf16("layers.0.q_proj.inner.weight", 64, 64),
}


@pytest.mark.parametrize("tree", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_what_stands_beside_weights_in_raw_cast_files_stays_accepted(tree: Tree, tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, {**W, **tree}), STORAGE)


def test_a_bias_beside_a_sound_unit(tmp_path: Path) -> None:
    tree = {**unit("mlp.gate", 256, 256), "mlp.gate.e_score_correction_bias": ("F32", (256,)), **bf16("mlp.gate.bias", 256)}
    assert_accepted(judge(tmp_path, tree, fp8_config()), BLOCKWISE)


TORCHAO: Tree = {"layers.0.q_weight_qdata": ("F8_E4M3", (512, 256)), "layers.0.q_weight_scale": ("F32", (512, 1))}
GPT_OSS: Tree = {"mlp.experts.w1_blocks": ("U8", (2, 64, 4, 16)), "mlp.experts.w1_scales": ("U8", (2, 64, 4))}
PAYLOADS = {
    "torchao@q_s": (TORCHAO, "layers.0.q_s", {"quant_method": "torchao"}),
    "torchao@smooth": (TORCHAO, "layers.0.q_weight_scale_smooth", {"quant_method": "torchao"}),
    "torchao@zeros": (TORCHAO, "layers.0.zeros", {"quant_method": "torchao"}),
    "gpt-oss@amax": (GPT_OSS, "mlp.experts.w1_amax", {"quant_method": "mxfp4"}),
    "gpt-oss@below": (GPT_OSS, "mlp.experts.w1_blocks.absmax", {"quant_method": "mxfp4"}),
}


@pytest.mark.parametrize(("tree", "name", "declared"), PAYLOADS.values(), ids=PAYLOADS)
def test_beside_a_payload_under_a_name_of_its_own(tree: Tree, name: str, declared: dict[str, str], tmp_path: Path) -> None:
    config = {"quantization_config": declared}
    sound = judge(tmp_path, tree, config)
    assert sound.contract is not None, why(sound)
    inspection = judge(tmp_path, {**tree, name: ("F32", (64,))}, config)
    assert [(each.code, each.object) for each in inspection.violations] == [("scale-name-unknown", name)], why(inspection)
    companion = judge(tmp_path, {**tree, f"{name.rpartition('_')[0]}_bias": ("F32", (64,))}, config)
    assert companion.contract == sound.contract, why(companion)


def test_fp8_parameters_may_scale_one_another_unless_they_are_of_one_size(tmp_path: Path) -> None:
    """The other direction of a recurrent layer is a weight too, and a vector beside a matrix is none."""
    one: Tree = {"lstm.weight_ih_l0": ("F8_E4M3", (64, 32)), "lstm.weight_ih_l0_reverse": ("F8_E4M3", (64, 32))}
    assert_accepted(judge(tmp_path, one), STORAGE)
    inspection = judge(tmp_path, {**one, "lstm.weight_ih_l0_s": ("F8_E4M3", (64,))})
    assert [(each.code, each.object) for each in inspection.violations] == [("scale-name-unknown", "lstm.weight_ih_l0_s")], why(inspection)

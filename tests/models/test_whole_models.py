"""Whole transformers models from block FP8: every parameter is what the contract means, and the model runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.hf_fp8_blockwise import load_hf_fp8_blockwise
from tensorhub_decoders.transformers_models.loading import ModelReport, load_model
from tensorhub_decoders.upcast.reference import dequantize_block_scaled
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3ForCausalLM

from tensorhub_contracts import Refusal
from tests.support import tiny_models

MODELS = {
    "llama": tiny_models.dense_llama,
    "qwen3": tiny_models.dense_qwen3,
    "qwen3-moe": tiny_models.dense_qwen3_moe,
    "qwen3-next": tiny_models.dense_qwen3_next,
    "deepseek-v3": tiny_models.dense_deepseek_v3,
}
TOKENS = torch.arange(3, 27)[None]


def meant(folder: Path) -> dict[str, torch.Tensor]:
    """What a block-FP8 file means, by the reference formula."""
    stored = load_file(folder / "model.safetensors")
    return {
        name: dequantize_block_scaled(tensor, stored[f"{name}_scale_inv"], out_dtype=torch.bfloat16)
        if f"{name}_scale_inv" in stored
        else tensor
        for name, tensor in stored.items()
        if not name.endswith("_scale_inv")
    }


def densely(folder: Path, into: Path) -> Any:
    """The same model, loaded by transformers from a dense checkpoint of what is meant."""
    into.mkdir()
    save_file(meant(folder), into / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    del config["quantization_config"]
    (into / "config.json").write_text(json.dumps(config), "utf-8")
    return AutoModelForCausalLM.from_pretrained(into, dtype=torch.bfloat16).eval()


@pytest.fixture(scope="module", params=MODELS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, ModelReport]:
    folder = tiny_models.fp8(MODELS[request.param], tmp_path_factory.mktemp(request.param))
    return folder, *load_hf_fp8_blockwise(folder, dtype="BF16", resident=False)


def test_every_parameter_is_what_the_contract_means(loaded: tuple[Path, Any, ModelReport], tmp_path: Path) -> None:
    folder, model, report = loaded
    dense = densely(folder, tmp_path / "dense")
    expected = dense.state_dict()
    assert set(model.state_dict()) == set(expected)
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), expected[name].reshape(-1).view(torch.uint8)), name
    with torch.no_grad():
        logits = model(TOKENS).logits
        assert bool(logits.isfinite().all())
        assert torch.equal(logits, dense(TOKENS).logits)
    assert (report.unused, report.load.dtype, report.load.resident) == ((), "BF16", False)


def test_every_scale_is_used_up_exactly_once(loaded: tuple[Path, Any, ModelReport]) -> None:
    folder, model, report = loaded
    units = {name.removesuffix("_scale_inv") for name in load_file(folder / "model.safetensors") if name.endswith("_scale_inv")}
    assert sorted(report.load.compute_paths["cpu.upcast"]) == sorted(units)
    assert not [name for name in model.state_dict() if "scale_inv" in name]
    assert not [tensor for tensor in model.state_dict().values() if tensor.dtype is torch.float8_e4m3fn]


def test_a_model_evaluates_and_asks_for_no_gradients(loaded: tuple[Path, Any, ModelReport]) -> None:
    _, model, _ = loaded
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_what_the_model_holds_in_another_dtype_is_reported(loaded: tuple[Path, Any, ModelReport]) -> None:
    """DeepSeek-V3 keeps its router in F32; nothing else is cast."""
    _, model, report = loaded
    router = {"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias"}
    assert set(report.cast) == (router if "DeepseekV3" in report.model_class else set())
    assert set(report.cast.values()) <= {"float32"}
    assert report.model_class.endswith(type(model).__name__)


def test_the_576_rows_are_read_in_blocks_of_128(tmp_path: Path) -> None:
    folder = tiny_models.fp8(tiny_models.dense_deepseek_v3, tmp_path)
    stored = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"
    assert stored[name].shape[0] == 576
    assert stored[f"{name}_scale_inv"].shape[0] == 5
    model, _ = load_model(folder, dtype="BF16", resident=False)
    held = model.state_dict()[name]
    assert torch.equal(held, dequantize_block_scaled(stored[name], stored[f"{name}_scale_inv"], out_dtype=torch.bfloat16))
    ceiling = 116  # the block that ceil(576 / 5) would give
    rows = torch.arange(576)
    assert int((rows // 128 != rows // ceiling).sum()) > 100, "the control: another block reads other scales"


def test_a_multi_token_prediction_module_is_proved_and_left_out_by_the_class(tmp_path: Path) -> None:
    """Qwen3-Next ignores `mtp.*` by itself: its units are verified, decoded and reported, and have no place."""
    folder = tiny_models.fp8(tiny_models.dense_qwen3_next, tmp_path)
    stored = load_file(folder / "model.safetensors")
    codes, scale = tiny_models.quantize(torch.randn(192, 384), torch.float32)
    save_file({**stored, "mtp.fc.weight": codes, "mtp.fc.weight_scale_inv": scale}, folder / "model.safetensors")
    _, report = load_hf_fp8_blockwise(folder, dtype="BF16", resident=False)
    assert report.ignored == ("mtp.fc.weight",)
    assert "mtp.fc.weight" in report.load.compute_paths["cpu.upcast"]


# ------------------------------------------------------------ what does not fit


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return tiny_models.fp8_llama(tmp_path / "llama")


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def refused(folder: Path, **arguments: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        load_model(folder, **{"dtype": "BF16", "resident": False, **arguments})
    return caught.value


def test_a_parameter_without_a_tensor_is_refused(llama: Path) -> None:
    def drop(tensors: dict[str, torch.Tensor]) -> None:
        del (
            tensors["model.norm.weight"],
            tensors["model.layers.1.mlp.up_proj.weight"],
            tensors["model.layers.1.mlp.up_proj.weight_scale_inv"],
        )

    refusal = refused(changed(llama, drop))
    assert [(each.code, each.object) for each in refusal.violations] == [
        ("model-keys", "model.layers.1.mlp.up_proj.weight"),
        ("model-keys", "model.norm.weight"),
    ]


def test_a_tensor_without_a_place_is_refused_unless_it_may_be_left_out(llama: Path) -> None:
    changed(llama, lambda tensors: tensors.update({"extra.vision.weight": torch.ones(4, 4, dtype=torch.bfloat16)}))
    refusal = refused(llama)
    assert [(each.code, each.object) for each in refusal.violations] == [("model-keys", "extra.vision.weight")]
    _, report = load_model(llama, dtype="BF16", resident=False, unused=("extra.*",))
    assert report.unused == ("extra.vision.weight",)
    assert refused(llama, unused=("other.*",)).codes == ("model-keys",)


def test_a_model_of_another_class_is_refused(llama: Path) -> None:
    """Qwen3 has norms of queries and keys, which no tensor of a Llama fills."""
    config = json.loads((llama / "config.json").read_text("utf-8"))
    (llama / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}), "utf-8")
    refusal = refused(llama, model_class=Qwen3ForCausalLM)
    assert {each.code for each in refusal.violations} == {"model-keys"}
    assert any("q_norm" in each.object for each in refusal.violations)


@pytest.mark.parametrize("architectures", [None, [], ["NoSuchModel"], ["LlamaForCausalLM", "Qwen3ForCausalLM"]])
def test_a_class_is_not_guessed(architectures: list[str] | None, llama: Path) -> None:
    config = json.loads((llama / "config.json").read_text("utf-8"))
    (llama / "config.json").write_text(json.dumps({**config, "architectures": architectures}), "utf-8")
    assert refused(llama).codes == ("model-class",)


def test_what_is_not_blockwise_is_refused_by_name_through_this_door(llama: Path, tmp_path: Path) -> None:
    def transpose(tensors: dict[str, torch.Tensor]) -> None:
        name = "model.layers.0.mlp.down_proj.weight_scale_inv"
        tensors[name] = tensors[name].t().contiguous()

    def rowwise(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.endswith("_scale_inv")]:
            weight = tensors[name.removesuffix("_scale_inv")]
            del tensors[name]
            tensors[name.replace("weight_scale_inv", "weight_scale")] = torch.ones(weight.shape[0])

    dense = tiny_models.dense_llama(tmp_path / "dense")
    rows = changed(tiny_models.fp8_llama(tmp_path / "rows"), rowwise)
    for folder, code in (
        (changed(llama, transpose), "scale-grid-transposed"),
        (dense, "contract-mismatch"),
        (rows, "scale-name-foreign"),
    ):
        with pytest.raises(Refusal) as caught:
            load_hf_fp8_blockwise(folder, dtype="BF16", resident=False)
        assert code in caught.value.codes, caught.value.codes


def test_a_dense_model_comes_through_the_same_door(tmp_path: Path) -> None:
    folder = tiny_models.dense_llama(tmp_path)
    model, report = load_model(folder, dtype="BF16", resident=False)
    assert report.load.contract == "plain.bf16@1"
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        assert torch.equal(model(TOKENS).logits, theirs(TOKENS).logits)


def test_the_configuration_of_the_model_declares_no_quantization(loaded: tuple[Path, Any, ModelReport]) -> None:
    folder, model, _ = loaded
    assert getattr(AutoConfig.from_pretrained(folder), "quantization_config", None) is not None
    assert getattr(model.config, "quantization_config", None) is None
    assert getattr(model, "hf_quantizer", None) is None

"""Scales of the key and value cache have no place in a model of transformers, scale no weight, and are left out by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.transformers_models.loading import load_model

from tensorhub_contracts import Refusal, inspect, load
from tests.support import tiny_models

K, V = "model.layers.0.self_attn.k_proj.k_scale", "model.layers.0.self_attn.v_proj.v_scale"
TOKENS = torch.arange(3, 27)[None]


def with_tensors(folder: Path, **tensors: torch.Tensor) -> Path:
    stored = load_file(folder / "model.safetensors")
    save_file({**stored, **tensors}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return tiny_models.fp8_llama(tmp_path / "llama")


@pytest.mark.parametrize("resident", [False, True])
def test_they_are_left_out_and_reported(llama: Path, resident: bool) -> None:
    bare, _ = load_model(llama, dtype="BF16", resident=resident)
    with_tensors(llama, **{K: torch.tensor(0.5), V: torch.tensor(0.25)})
    model, report = load_model(llama, dtype="BF16", resident=resident)
    assert report.cache_scales == report.load.cache_scales == (K, V)
    assert report.unused == ()
    assert torch.equal(model(TOKENS).logits, bare(TOKENS).logits)


def test_one_that_the_caller_names_is_unused_as_before(llama: Path) -> None:
    with_tensors(llama, **{K: torch.tensor(0.5), V: torch.tensor(0.25)})
    _, report = load_model(llama, dtype="BF16", resident=False, unused=("*.k_scale",))
    assert (report.unused, report.cache_scales) == ((K,), (V,))


def test_without_any_the_report_names_none(llama: Path) -> None:
    _, report = load_model(llama, dtype="BF16", resident=False)
    assert report.cache_scales == report.load.cache_scales == ()


def test_another_tensor_without_a_place_is_still_refused(llama: Path) -> None:
    with_tensors(llama, **{K: torch.tensor(0.5), "model.layers.0.self_attn.other": torch.tensor(0.5)})
    with pytest.raises(Refusal) as caught:
        load_model(llama, dtype="BF16", resident=False)
    assert [(each.code, each.object) for each in caught.value.violations] == [("model-keys", "model.layers.0.self_attn.other")]


def test_load_hands_them_out_as_they_are_stored(llama: Path) -> None:
    with_tensors(llama, **{K: torch.tensor(0.5), V: torch.tensor(0.25)})
    loaded = load(llama, dtype="BF16", resident=False)
    assert loaded.report.cache_scales == (K, V)
    assert loaded.weights[K].item() == 0.5
    assert any(K in note for note in inspect(llama).notes)

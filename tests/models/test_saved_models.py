"""`save_pretrained` of a model that keeps FP8: what is written is the contract that was loaded, with its declaration, or nothing is."""

from __future__ import annotations

import copy
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorhub_decoders.transformers_models.loading import load_model
from transformers import PreTrainedModel

from tensorhub_contracts import Refusal, inspect
from tests.models.test_resident_models import MODELS
from tests.support import tiny_models

TOKENS = torch.arange(1, 41).view(2, 20) * 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return functools.cache(lambda name: MODELS[name](tmp_path_factory.mktemp(name)))


@pytest.fixture
def model(folders: Callable[[str], Path]) -> Any:
    return load_model(folders("llama"), dtype="BF16", resident=True)[0]


def declared(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text("utf-8")).get("quantization_config")


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


def refused(model: Any, folder: Path, *arguments: Any, **words: Any) -> Refusal:
    """Assert that saving is refused, and that nothing lies at the destination or beside it that was not there."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(Refusal) as caught:
        model.save_pretrained(folder, *arguments, **words)
    assert sorted(folder.parent.rglob("*")) == before
    return caught.value


@pytest.mark.parametrize("size", ["50GB", "200KB"])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_is_the_contract_that_was_loaded(name: str, size: str, folders: Callable[[str], Path], tmp_path: Path) -> None:
    source = folders(name)
    model, report = load_model(source, dtype="BF16", resident=True)
    expected = logits(model)
    model.save_pretrained(tmp_path / "saved", max_shard_size=size)
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]
    assert (len(list((tmp_path / "saved").glob("*.safetensors"))) > 1) is (size == "200KB")
    assert inspect(tmp_path / "saved").require().contract == report.load.contract
    assert declared(tmp_path / "saved") == declared(source)
    before, after = stored(source), stored(tmp_path / "saved")
    assert set(before) - set(after) == {each for each in before if each.startswith("mtp.")}
    for each, tensor in after.items():
        assert tensor.dtype == before[each].dtype or (before[each].dtype, tensor.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(tensor.double(), before[each].double()), each
    again, _ = load_model(tmp_path / "saved", dtype="BF16", resident=True)
    assert torch.equal(logits(again), expected)
    ahead, _ = load_model(tmp_path / "saved", dtype="BF16", resident=False)
    assert bool(logits(ahead).isfinite().all())


@pytest.mark.parametrize("how", ["copied", "pickled", "compiled"])
def test_copies_of_a_model_save_themselves_so_too(how: str, model: Any, tmp_path: Path) -> None:
    if how == "copied":
        other = copy.deepcopy(model)
    elif how == "compiled":
        other = torch.compile(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    with torch.no_grad():
        model.model.norm.weight.zero_()
    other.save_pretrained(tmp_path / "saved")
    assert inspect(tmp_path / "saved").require().contract == "hf.fp8-blockwise@1"
    zeroed = not stored(tmp_path / "saved")["model.norm.weight"].any()
    assert zeroed is (how == "compiled"), "a copy saves its own weights, a wrapper those that it wraps"


def test_the_librarys_own_method_writes_the_declaration_too(model: Any, tmp_path: Path) -> None:
    """Whoever goes round the proof: the model's configuration says what it holds."""
    PreTrainedModel.save_pretrained(model, tmp_path / "saved")
    assert inspect(tmp_path / "saved").require().contract == "hf.fp8-blockwise@1"


def test_a_model_that_was_upcast_declares_nothing(folders: Callable[[str], Path], tmp_path: Path) -> None:
    model, _ = load_model(folders("llama"), dtype="BF16", resident=False)
    model.save_pretrained(tmp_path / "saved")
    assert inspect(tmp_path / "saved").require().contract == "plain.bf16@1"
    assert declared(tmp_path / "saved") is None


@pytest.mark.parametrize(
    ("cast", "dtype"),
    [
        (lambda model: model.half(), torch.float16),
        (lambda model: model.float(), torch.float32),
        (lambda model: model.to("cpu"), torch.bfloat16),
    ],
)
def test_casts_and_moves_reach_what_nothing_scales(cast: Any, dtype: torch.dtype, model: Any, folders: Any, tmp_path: Path) -> None:
    cast(model)
    model.save_pretrained(tmp_path / "saved")
    assert inspect(tmp_path / "saved").require().contract == "hf.fp8-blockwise@1"
    before, after = stored(folders("llama")), stored(tmp_path / "saved")
    assert after["model.norm.weight"].dtype is dtype
    codes = {name for name, tensor in before.items() if tensor.dtype is torch.float8_e4m3fn}
    assert codes
    assert all(torch.equal(after[name].view(torch.uint8), before[name].view(torch.uint8)) for name in codes)


def test_a_cast_that_the_contract_does_not_have_is_refused(model: Any, tmp_path: Path) -> None:
    model.double()
    refusal = refused(model, tmp_path / "saved")
    assert "unquantized-dtype" in refusal.codes


def test_changed_weights_are_saved_as_they_are(model: Any, folders: Callable[[str], Path], tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changed = "model.layers.0.mlp.up_proj.weight_scale_inv"
    state[changed] *= 2
    model.load_state_dict(state)
    model.save_pretrained(tmp_path / "saved")
    assert torch.equal(stored(tmp_path / "saved")[changed], stored(folders("llama"))[changed] * 2)


@pytest.mark.parametrize("weight", [torch.nn.Linear(256, 192).weight.data, None])
def test_a_model_that_lost_a_unit_is_refused_by_name(weight: Any, model: Any, tmp_path: Path) -> None:
    """An ordinary matrix where the declaration says that there is a unit: other loaders would read it as codes."""
    layer = model.model.layers[0].mlp
    plain = torch.nn.Linear(*reversed(layer.up_proj.shape), bias=False, dtype=torch.bfloat16)
    layer.up_proj = plain if weight is not None else torch.nn.Identity()
    refusal = refused(model, tmp_path / "saved")
    assert [(each.code, each.object) for each in refusal.violations] == [("save-unsupported", "model.layers.0.mlp.up_proj.weight")]


def test_a_unit_that_is_put_elsewhere_too_is_refused_by_name(model: Any, tmp_path: Path) -> None:
    model.model.layers[0].extra = copy.deepcopy(model.model.layers[0].mlp.up_proj)
    refusal = refused(model, tmp_path / "saved")
    assert [(each.code, each.object) for each in refusal.violations] == [("save-unsupported", "model.layers.0.extra.weight")]


@pytest.mark.parametrize(
    "words",
    [
        {"state_dict": {}},
        {"push_to_hub": True},
        {"distributed_checkpoint": True},
        {"safe_serialization": False},
        {"variant": "fp8"},
        {"push_to_hub": 1, "variant": ""},
    ],
    ids=str,
)
def test_arguments_under_which_nothing_is_proved_are_refused_by_name(words: dict[str, Any], model: Any, tmp_path: Path) -> None:
    refusal = refused(model, tmp_path / "saved", **words)
    assert {(each.code, each.object) for each in refusal.violations} == {("save-unsupported", name) for name in words}


def test_arguments_that_change_nothing_are_taken(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved", True, safe_serialization=True, state_dict=None, push_to_hub=False, variant=None)
    assert inspect(tmp_path / "saved").require().contract == "hf.fp8-blockwise@1"


def test_a_process_that_is_not_the_main_one_writes_nothing(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "saved", is_main_process=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(model: Any, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "tokenizer.json").write_text("{}", "utf-8")
    assert refused(model, saved).codes == ("destination-exists",)
    (saved / "tokenizer.json").unlink()
    model.save_pretrained(saved)
    assert refused(model, saved).codes == ("destination-exists",)
    assert refused(model, saved / "config.json").codes == ("destination-exists",)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    model.save_pretrained(link / "deeper" / "still")
    assert inspect(tmp_path / "elsewhere" / "deeper" / "still").require().contract == "hf.fp8-blockwise@1"


def test_a_save_that_fails_leaves_nothing(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **words: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full)
    with pytest.raises(OSError, match="No space"):
        model.save_pretrained(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_a_declaration_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    model, _ = load_model(tiny_models.fp8_llama(tmp_path / "source"), dtype="BF16", resident=True)
    del model.config.quantization_config
    (tmp_path / "to").mkdir()
    assert "declaration-missing" in refused(model, tmp_path / "to" / "saved").codes

"""Whole models whose weights stay FP8: the numbers of the dense model, from the stored bytes alone, and a report that is measured."""

from __future__ import annotations

import copy
import functools
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import tensorhub_decoders.resident.stored_weight as resident_weight
import tensorhub_decoders.upcast.cutting as cutting
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.hf_fp8_blockwise import load_hf_fp8_blockwise
from tensorhub_decoders.resident.experts import ResidentExperts
from tensorhub_decoders.resident.linear import ResidentLinear, ResidentModule
from tensorhub_decoders.resident.multiply import ResidentOperand
from tensorhub_decoders.resident.stored_weight import StoredWeight
from tensorhub_decoders.transformers_models.loading import ModelReport, load_model
from tensorhub_decoders.upcast import strips as upcast_strips
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tensorhub_contracts import Refusal
from tests.support import tiny_models
from tests.support.conversions import BLOCKWISE, ROWWISE, done

TOKENS = torch.arange(1, 41).view(2, 20) * 2
FEW_TOKENS = torch.arange(1, 25)[None] * 5  # few that reach every expert
LANES = [("fp8-w8a16", "BF16"), ("fp8-w8a16", "F16"), ("fp8-w8a32", "F32")]
TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
NUMPY = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}


def with_mtp(folder: Path) -> Path:
    """A Qwen3-Next with a prediction module, which the class itself leaves out."""
    tiny_models.fp8(tiny_models.dense_qwen3_next, folder)
    stored = load_file(folder / "model.safetensors")
    codes, scale = tiny_models.quantize(torch.randn(192, 384), torch.float32)
    save_file({**stored, "mtp.fc.weight": codes, "mtp.fc.weight_scale_inv": scale}, folder / "model.safetensors")
    return folder


def dense_with_bias(folder: Path) -> Path:
    """A dense Qwen2, whose projections of attention have a bias that is not zero."""
    torch.manual_seed(5)
    model = Qwen2ForCausalLM(Qwen2Config(**tiny_models._SIZES)).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return folder


def dense_and_tied(folder: Path) -> Path:
    """A dense Qwen2 whose head is its embedding."""
    torch.manual_seed(6)
    config = Qwen2Config(**{**tiny_models._SIZES, "tie_word_embeddings": True})
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def stacked_on_disk(folder: Path) -> Path:
    """A Qwen3-MoE whose experts are two stacked units a layer, by the names of the model's own parameters."""
    tiny_models.fp8(tiny_models.dense_qwen3_moe, folder)
    stored = load_file(folder / "model.safetensors")
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp.experts"
        for fused, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
            weights, scales = [], []
            for expert in range(4):
                whole = torch.cat([dequantized(stored, f"{prefix}.{expert}.{part}.weight", "F32") for part in parts])
                codes, scale = tiny_models.quantize(whole, torch.bfloat16)
                weights.append(codes)
                scales.append(scale)
                for part in parts:
                    del stored[f"{prefix}.{expert}.{part}.weight"], stored[f"{prefix}.{expert}.{part}.weight_scale_inv"]
            stored[f"{prefix}.{fused}"], stored[f"{prefix}.{fused}_scale_inv"] = torch.stack(weights), torch.stack(scales)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def rowwise(folder: Path) -> Path:
    """A Llama in `cozy.fp8-rowwise@1`: a scale for each row, and no declaration."""
    tiny_models.fp8_llama(folder)
    stored = load_file(folder / "model.safetensors")
    for scale_name in [name for name in stored if name.endswith("_scale_inv")]:
        name = scale_name.removesuffix("_scale_inv")
        dense = dequantized(stored, name, "F32")
        del stored[scale_name]
        scale = dense.abs().amax(dim=1) / 448
        stored[f"{name}_scale"] = scale
        stored[name] = (dense / scale[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def produced(folder: Path, contract: str) -> Path:
    """A Llama that `tensorhub produce` quantized, its head too; an embedding is no projection."""
    with tempfile.TemporaryDirectory() as dense:
        tiny_models.dense_llama(Path(dense))
        folder.rmdir()
        done("produce", dense, folder, "--to", contract, "--skip", "*embed_tokens*")
    return folder


MODELS: dict[str, Callable[[Path], Path]] = {
    "llama": tiny_models.fp8_llama,
    "qwen3": functools.partial(tiny_models.fp8, tiny_models.dense_qwen3),
    "qwen3-moe": functools.partial(tiny_models.fp8, tiny_models.dense_qwen3_moe, scale_dtype=torch.bfloat16),
    "qwen3-next": with_mtp,
    "deepseek-v3": functools.partial(tiny_models.fp8, tiny_models.dense_deepseek_v3),
    "bias": functools.partial(tiny_models.fp8, dense_with_bias),
    "tied": functools.partial(tiny_models.fp8, dense_and_tied),
    "stacked": stacked_on_disk,
    "rowwise": rowwise,
    "produced": functools.partial(produced, contract=BLOCKWISE),
    "produced rowwise": functools.partial(produced, contract=ROWWISE),
}


def dequantized(stored: dict[str, torch.Tensor], name: str, dtype: str) -> torch.Tensor:
    """The formula in numpy and ml_dtypes, for units of every form: the product in F32, then rounded."""
    weight = stored[name]
    scale = stored.get(f"{name}_scale_inv")
    values = weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    if scale is None:
        spread = stored[f"{name}_scale"].numpy()[:, None]
    else:
        rows, columns = np.arange(weight.shape[-2]) // 128, np.arange(weight.shape[-1]) // 128
        spread = scale.float().numpy()[..., rows[:, None], columns[None]]
    rounded = (values * spread).astype(np.float32).astype(NUMPY[dtype])
    return torch.from_numpy(rounded.view(np.int16 if rounded.itemsize == 2 else np.int32)).view(TORCH[dtype])


class Case(NamedTuple):
    folder: Path
    stored: dict[str, torch.Tensor]
    units: set[str]
    lane: str
    dtype: str
    model: Any
    report: ModelReport

    @property
    def dense(self) -> dict[str, torch.Tensor]:
        """What the checkpoint stores beside units."""
        return {name: tensor for name, tensor in self.stored.items() if name not in self.units and "_scale" not in name}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @functools.cache
    def folder(name: str) -> Path:
        return MODELS[name](tmp_path_factory.mktemp(name))

    return folder


#: Every model in one lane, and those of the architectures in the others too. What does not depend on the lane is looked at in one:
#: those come first, so that pytest takes tests of both kinds together and loads each model once a lane.
ONE_LANE = [(name, *LANES[0]) for name in MODELS]
CASES = ONE_LANE + [(name, *lane) for name in ("llama", "qwen3", "qwen3-moe", "qwen3-next", "deepseek-v3", "rowwise") for lane in LANES[1:]]

in_one_lane = pytest.mark.parametrize("case", ONE_LANE, indirect=True, ids="-".join)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Case:
    name, lane, dtype = request.param
    folder = folders(name)
    stored = load_file(folder / "model.safetensors")
    units = {name for name, tensor in stored.items() if tensor.dtype is torch.float8_e4m3fn}
    model, report = load_model(folder, dtype=dtype, lane=lane, resident=True)
    return Case(folder, stored, units, lane, dtype, model, report)


def logits(model: Any, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(tokens).logits
    assert bool(found.isfinite().all())
    return found


@pytest.fixture(scope="module")
def expected(case: Case) -> torch.Tensor:
    """What the resident model says before anything is done with it."""
    return logits(case.model)


@pytest.fixture(scope="module")
def ahead(case: Case) -> Any:
    """The same model, upcast ahead of time."""
    model, _ = load_model(case.folder, dtype=case.dtype, lane=case.lane, resident=False)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model


def densely(case: Case, into: Path) -> Any:
    """The same model, loaded by transformers from a dense checkpoint of what is meant."""
    into.mkdir()
    tensors = case.dense | {name: dequantized(case.stored, name, case.dtype) for name in case.units}
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((case.folder / "config.json").read_text("utf-8"))
    config.pop("quantization_config", None)
    (into / "config.json").write_text(json.dumps(config), "utf-8")
    model = AutoModelForCausalLM.from_pretrained(into, dtype=TORCH[case.dtype]).eval()
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model


def resident_modules(model: torch.nn.Module) -> list[ResidentModule]:
    return [module for module in model.modules() if isinstance(module, ResidentModule)]


def units_of(model: torch.nn.Module) -> list[tuple[str, str, StoredWeight]]:
    return [unit for module in resident_modules(model) for unit in module.stored_weights()]


def tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that is reachable from a model: not only parameters and buffers, but whatever its modules hold."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (torch.nn.Module, StoredWeight, ResidentOperand)):
        yield from tensors_in(vars(value), seen)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each, seen)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from tensors_in(each, seen)


# ------------------------------------------------------------ the numbers


def test_logits_are_bitwise_those_of_the_dense_model(case: Case, expected: torch.Tensor, ahead: Any, tmp_path: Path) -> None:
    """Upcast by us ahead of time, and dequantized by the formula and loaded by transformers."""
    assert expected.dtype is TORCH[case.dtype]
    assert torch.equal(expected, logits(ahead))
    dense = densely(case, tmp_path / "dense")
    assert torch.equal(expected, logits(dense))


def test_in_many_strips_logits_are_close(case: Case, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows are multiplied at once changes the order of sums, and nothing else."""
    one = expected.double()
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", 1)
    many = logits(case.model).double()
    error = float((many - one).norm() / one.norm())
    assert error < {"BF16": 3e-2, "F16": 4e-3, "F32": 1e-5}[case.dtype]


@in_one_lane
def test_every_unit_counts(case: Case) -> None:
    """FP8 that was loaded and never used could not pass: every unit whose codes and scale change changes the logits."""
    before = logits(case.model, FEW_TOKENS)
    unseen = []
    for weight, _, unit in units_of(case.model):
        upper = unit.weight.view(torch.uint8)[: max(1, unit.weight.shape[0] // 2)]
        unit.scale.mul_(-2)
        upper ^= 0x80
        if torch.equal(logits(case.model, FEW_TOKENS), before):
            unseen.append((weight, tuple(unit.weight.shape)))
        upper ^= 0x80
        unit.scale.div_(-2)
    assert unseen == []
    assert torch.equal(logits(case.model, FEW_TOKENS), before)


# ------------------------------------------------------------ what executed


def test_the_report_names_what_executed(case: Case, ahead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit that the report lists is read by an upcast during the forward, from the memory that the model holds; densely none is."""
    spans = {
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes): name
        for name, tensor in case.model.state_dict().items()
        if tensor.dtype is torch.float8_e4m3fn
    }
    read: dict[str, int] = {}
    functions: set[str] = set()

    def traced(function: str) -> Callable[..., torch.Tensor]:
        original = getattr(upcast_strips, function)

        def call(weight: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
            (name,) = [name for (begin, end), name in spans.items() if begin <= weight.data_ptr() < end]
            read[name] = read.get(name, 0) + weight.numel()
            functions.add(function)
            result: torch.Tensor = original(weight, *others, **named)
            return result

        return call

    for function in ("upcast_block_scaled", "upcast_row_scaled"):
        monkeypatch.setattr(resident_weight, function, traced(function))
    logits(case.model)
    ((path, listed),) = case.report.load.compute_paths.items()
    assert path == f"cpu.strip_upcast_w8a{32 if case.dtype == 'F32' else 16}"
    assert set(listed) == case.units
    assert set(read) == set(listed) - set(case.report.ignored)
    assert read == {name: case.stored[name].numel() for name in read}, "each unit is upcast once, whole"
    assert functions == {"upcast_row_scaled" if "rowwise" in case.report.load.contract else "upcast_block_scaled"}
    read.clear()
    logits(ahead)
    assert read == {}


def test_the_lane_is_the_one_that_was_asked_for(case: Case) -> None:
    report = case.report.load
    assert (report.resident, report.dtype, report.device) == (True, case.dtype, "cpu")
    assert report.lane.startswith(case.lane)
    bits = {module.activation_bits for module in resident_modules(case.model)}
    assert bits == {32 if case.dtype == "F32" else 16}


# ------------------------------------------------------------ what is held


def test_nothing_is_held_beside_the_stored_bytes(case: Case) -> None:
    """Bytes are measured by the model, and not taken from the report: no dense copy of a unit is anywhere in it."""
    held = {(tensor.data_ptr(), tensor.nbytes): tensor for tensor in tensors_in(case.model, set()) if tensor.numel()}
    placed = {name: tensor for name, tensor in case.stored.items() if not any(name.startswith(left) for left in case.report.ignored)}
    fp8 = [tensor for tensor in held.values() if tensor.dtype is torch.float8_e4m3fn]
    assert sum(tensor.nbytes for tensor in fp8) == sum(placed[name].nbytes for name in case.units & set(placed))
    scales = sum(tensor.nbytes for name, tensor in placed.items() if "_scale" in name)
    cast = {name: getattr(torch, dtype).itemsize for name, dtype in case.report.cast.items()}
    dense = sum(tensor.numel() * cast.get(name, tensor.dtype.itemsize) for name, tensor in case.dense.items())
    known = {tensor.data_ptr() for tensor in case.model.state_dict().values()}
    others = [tensor for tensor in held.values() if tensor.data_ptr() not in known]
    assert all(tensor.dim() == 1 and tensor.numel() < 1000 for tensor in others), "tables of positions, and nothing else"
    measured = sum(tensor.nbytes for tensor in held.values()) - sum(tensor.nbytes for tensor in others)
    assert measured == sum(tensor.nbytes for tensor in fp8) + scales + dense
    stored = sum(tensor.nbytes for tensor in case.stored.values())
    assert (case.report.load.resident_bytes, case.report.load.stored_bytes) == (stored, stored)
    grown = sum(case.dense[name].numel() * (size - case.dense[name].dtype.itemsize) for name, size in cast.items())
    left_out = stored - sum(tensor.nbytes for tensor in placed.values())
    assert measured == case.report.load.resident_bytes + grown - left_out


def test_storages_hold_nothing_beside_tensors(case: Case) -> None:
    """Codes lie in memory of their own, so that a cast of the other tensors leaves nothing dead beside them.

    What no tensor of the model takes is rounding to a cache line, units that the class ignores, and in a lane where some
    dense tensors of a dtype are cast and others of it are not, the stored bytes of the former.
    """
    state = case.model.state_dict()
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in state.values()}
    of_codes = {state[name].untyped_storage().data_ptr() for name in case.units & set(state)}
    of_others = {tensor.untyped_storage().data_ptr() for name, tensor in state.items() if name not in case.units}
    assert of_codes.isdisjoint(of_others)
    assert len(of_codes) == 1, "one arena, and not a memory for each unit"
    assert sum(storages[place] for place in of_codes) == sum(padded(case.stored[name]) for name in case.units)
    scales = [tensor for name, tensor in case.stored.items() if "_scale" in name and not name.startswith(case.report.ignored or ("-",))]
    cast = {name: case.dense[name].numel() * getattr(torch, dtype).itemsize for name, dtype in case.report.cast.items()}
    kept = {tensor.dtype for name, tensor in case.dense.items() if name not in cast}
    arenas = [tensor for tensor in case.dense.values() if tensor.dtype in kept]
    wanted = sum(tensor.nbytes for tensor in scales) + sum(cast.values()) + sum(map(padded, arenas))
    assert sum(storages[place] for place in of_others) == wanted


def padded(tensor: torch.Tensor) -> int:
    """What a tensor takes in an arena."""
    return -(-tensor.nbytes // 64) * 64


def test_the_model_evaluates_and_asks_for_no_gradients(case: Case) -> None:
    assert not any(module.training for module in case.model.modules())
    assert not any(parameter.requires_grad for parameter in case.model.parameters())
    assert not any(parameter.dtype is torch.float8_e4m3fn for parameter in case.model.parameters())
    assert not any(buffer.dtype is torch.float8_e4m3fn for buffer in case.model.buffers())
    modules = resident_modules(case.model)
    assert len(units_of(case.model)) == len(case.units) - len(case.report.ignored)
    assert all(isinstance(module, (ResidentLinear, ResidentExperts)) for module in modules)


# ------------------------------------------------------------ state, copies, casts


def test_the_state_has_the_names_and_bytes_of_the_checkpoint(case: Case) -> None:
    state = case.model.state_dict()
    expected = {name: tensor for name, tensor in case.stored.items() if not any(name.startswith(left) for left in case.report.ignored)}
    if case.model.config.tie_word_embeddings:
        assert state.pop("lm_head.weight").data_ptr() == state["model.embed_tokens.weight"].data_ptr()
    assert set(state) == set(expected)
    for name, tensor in state.items():
        wanted = expected[name].to(getattr(torch, case.report.cast.get(name, str(expected[name].dtype).removeprefix("torch."))))
        assert tensor.dtype == wanted.dtype, name
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), wanted.reshape(-1).view(torch.uint8)), name


def changed_state(case: Case) -> dict[str, torch.Tensor]:
    """A state in which every tensor is another one, of the same shapes and dtypes."""
    state = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    for name, tensor in state.items():
        if tensor.dtype is torch.float8_e4m3fn:
            tensor.view(torch.uint8).bitwise_xor_(0x80)
        elif "_scale" in name:
            tensor.mul_(0.5)
    return state


@in_one_lane
def test_a_state_goes_round(case: Case, expected: torch.Tensor) -> None:
    model = copy.deepcopy(case.model)
    assert torch.equal(logits(model), expected)
    state = changed_state(case)
    assert model.load_state_dict(state) == ([], [])
    after = model.state_dict()
    assert all(torch.equal(after[name].reshape(-1).view(torch.uint8), state[name].reshape(-1).view(torch.uint8)) for name in state)
    assert not torch.equal(logits(model), expected)
    assert torch.equal(logits(case.model), expected), "the copy shares nothing"
    assert model.load_state_dict(case.model.state_dict()) == ([], [])
    assert torch.equal(logits(model), expected)


@in_one_lane
def test_a_state_that_lacks_something_or_has_more_or_other_dtypes_is_an_error(case: Case) -> None:
    model = copy.deepcopy(case.model)
    state = dict(case.model.state_dict())
    placed = case.units & set(state)
    for name in sorted(placed)[:: max(1, len(placed) // 3)]:
        scale = next(each for each in (f"{name}_scale_inv", f"{name}_scale") if each in state)
        for broken, message in (
            ({each: tensor for each, tensor in state.items() if each != name}, "Missing key.*"),
            ({each: tensor for each, tensor in state.items() if each != scale}, "Missing key.*"),
            ({**state, name: state[name].float()}, "expected torch.float8_e4m3fn"),
            ({**state, f"{name}.more": state[name]}, "Unexpected key.*"),
        ):
            with pytest.raises(RuntimeError, match=message) as caught:
                model.load_state_dict(broken)
            assert name in str(caught.value)


@in_one_lane
def test_a_state_in_part_fills_what_it_has(case: Case) -> None:
    model = copy.deepcopy(case.model)
    state = changed_state(case)
    left_out = sorted(case.units & set(state))[0]
    del state[left_out]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == ([left_out], [])
    after = model.state_dict()
    for name in case.units & set(after):
        source = case.stored if name == left_out else state
        assert torch.equal(after[name].view(torch.uint8), source[name].view(torch.uint8)), name


CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "to float16": lambda model: model.to(torch.float16),
    "half": lambda model: model.half(),
    "bfloat16": lambda model: model.bfloat16(),
    "float": lambda model: model.float(),
    "double": lambda model: model.double(),
}


@in_one_lane
def test_no_cast_reaches_codes_or_scales_and_a_move_takes_them_along(case: Case) -> None:
    model = copy.deepcopy(case.model)
    expected = {name: tensor for name, tensor in case.stored.items() if name in case.units or "_scale" in name}
    for cast in CASTS.values():
        model = cast(model)
        state = model.state_dict()
        for name in set(expected) & set(state):
            assert state[name].dtype == expected[name].dtype, name
            assert torch.equal(state[name].view(-1).view(torch.uint8), expected[name].view(-1).view(torch.uint8)), name
    moved = model.to("meta")
    assert {tensor.device.type for name, tensor in moved.state_dict().items() if name in expected} == {"meta"}
    assert {tensor.dtype for name, tensor in moved.state_dict().items() if name in case.units} == {torch.float8_e4m3fn}


def test_a_model_is_pickled_and_means_the_same(case: Case, expected: torch.Tensor) -> None:
    """Each arena is written once, and whole: torch saves no storage that holds tensors of several dtypes."""
    buffer = io.BytesIO()
    torch.save(case.model, buffer)
    state = case.model.state_dict()
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in state.values()}
    assert buffer.tell() < 1.05 * sum(storages.values())
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    assert torch.equal(logits(again), expected)
    found = again.state_dict()
    assert list(found) == list(state)
    for name, tensor in state.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
    assert not storages.keys() & {tensor.untyped_storage().data_ptr() for tensor in found.values()}
    assert again.load_state_dict(state) == ([], [])
    assert torch.equal(logits(again), expected)


@in_one_lane
def test_a_state_is_saved_as_a_checkpoint(case: Case, expected: torch.Tensor, tmp_path: Path) -> None:
    state = case.model.state_dict()
    if case.model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((case.folder / "config.json").read_bytes())
    loaded, report = load_model(tmp_path, dtype="BF16", lane=case.lane, resident=True)
    assert torch.equal(logits(loaded), expected)
    assert report.load.contract == case.report.load.contract


# ------------------------------------------------------------ single models


def test_biases_and_ties_are_kept(folders: Callable[[str], Path]) -> None:
    biased, _ = load_model(folders("bias"), dtype="BF16", resident=True)
    stored = load_file(folders("bias") / "model.safetensors")
    projections = {name: module for name, module in biased.named_modules() if isinstance(module, ResidentLinear)}
    with_bias = {name for name, module in projections.items() if module.bias is not None}
    assert with_bias == {name.removesuffix(".bias") for name in stored if name.endswith(".bias")}
    assert len(with_bias) == 6
    assert all(torch.equal(projections[name].bias, stored[f"{name}.bias"]) for name in with_bias)
    tied, _ = load_model(folders("tied"), dtype="BF16", resident=True)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight


def test_a_prediction_module_that_the_class_ignores_is_proved_and_reported(folders: Callable[[str], Path]) -> None:
    model, report = load_hf_fp8_blockwise(folders("qwen3-next"), dtype="BF16", resident=True)
    assert report.ignored == ("mtp.fc.weight",)
    assert "mtp.fc.weight" in report.load.compute_paths["cpu.strip_upcast_w8a16"]
    assert not [name for name in model.state_dict() if "mtp" in name]


def test_experts_of_another_implementation_are_an_error_and_never_a_dense_copy(folders: Callable[[str], Path]) -> None:
    model, _ = load_model(folders("qwen3-moe"), dtype="BF16", resident=True)
    for implementation in ("batched_mm", "grouped_mm"):
        model.set_experts_implementation(implementation)
        with pytest.raises((TypeError, AttributeError)):
            logits(model)
    model.set_experts_implementation("eager")
    logits(model)


def test_inference_mode_and_no_grad_may_follow_one_another(folders: Callable[[str], Path]) -> None:
    model, _ = load_model(folders("llama"), dtype="BF16", resident=True)
    with torch.inference_mode():
        first = model(TOKENS).logits.clone()
    assert torch.equal(first, logits(model))
    assert torch.equal(first, model(TOKENS).logits)


# ------------------------------------------------------------ what is refused


def refused(folder: Path, load_it: Callable[..., Any] = load_model, **arguments: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        load_it(folder, **{"dtype": "BF16", "resident": True, **arguments})
    return caught.value


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_dense_tree_is_refused_by_name(tmp_path: Path) -> None:
    folder = tiny_models.dense_llama(tmp_path)
    refusal = refused(folder)
    assert refusal.codes == ("load-unsupported",)
    assert "resident" in refusal.violations[0].expected
    assert "resident=False" in refusal.violations[0].remedy
    assert refused(folder, load_hf_fp8_blockwise).codes == ("contract-mismatch",)


def test_other_layouts_are_refused_by_name_through_the_blockwise_door(folders: Callable[[str], Path], tmp_path: Path) -> None:
    def transpose(tensors: dict[str, torch.Tensor]) -> None:
        name = "model.layers.0.mlp.down_proj.weight_scale_inv"
        tensors[name] = tensors[name].t().contiguous()

    transposed = changed(tiny_models.fp8_llama(tmp_path / "transposed"), transpose)
    for door in (load_model, load_hf_fp8_blockwise):
        refusal = refused(transposed, door)
        assert [(each.code, each.object) for each in refusal.violations] == [
            ("scale-grid-transposed", "model.layers.0.mlp.down_proj.weight_scale_inv")
        ]
    assert refused(folders("rowwise"), load_hf_fp8_blockwise).codes != ()
    model, report = load_model(folders("rowwise"), dtype="BF16", resident=True)
    assert report.load.contract == "cozy.fp8-rowwise@1"
    logits(model)


def test_bad_values_are_refused_together_and_only_where_they_would_be_computed_with(tmp_path: Path) -> None:
    def poison(tensors: dict[str, torch.Tensor]) -> None:
        down = "model.layers.1.mlp.down_proj.weight"
        tensors["model.layers.0.self_attn.q_proj.weight"].view(torch.uint8)[0, :3] = 0xFF
        tensors["model.layers.0.mlp.up_proj.weight_scale_inv"][0, 0] = -1.0
        tensors[down].view(torch.uint8)[-1, -1] = 0x7F
        tensors[f"{down}_scale_inv"][0] = float("nan")

    folder = changed(tiny_models.fp8_llama(tmp_path), poison)
    refusal = refused(folder)
    assert set(refusal.codes) == {"payload-values"}
    assert sorted((each.object, each.found) for each in refusal.violations) == [
        ("model.layers.0.mlp.up_proj.weight", "1 scales that are negative or not finite"),
        ("model.layers.0.self_attn.q_proj.weight", "3 NaN codes"),
        ("model.layers.1.mlp.down_proj.weight", "1 NaN codes"),
        ("model.layers.1.mlp.down_proj.weight", "3 scales that are negative or not finite"),
    ]
    load_model(folder, dtype="BF16", resident=False)


def test_units_that_are_no_projection_are_all_named(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """An embedding and routers: the model looks rows up in one, and multiplies with the others as it likes."""
    tiny_models.fp8(tiny_models.dense_qwen3_moe, tmp_path)
    names = ["model.embed_tokens.weight", "model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight"]

    def quantize(tensors: dict[str, torch.Tensor]) -> None:
        for name in names:
            tensors[name], tensors[f"{name}_scale_inv"] = tiny_models.quantize(tensors[name], torch.float32)

    refusal = refused(changed(tmp_path, quantize))
    assert sorted((each.code, each.object) for each in refusal.violations) == [("resident-placement", name) for name in names]
    assert "Embedding" in next(each.found for each in refusal.violations if "embed" in each.object)
    load_model(tmp_path, dtype="BF16", resident=False)


class Buffered(LlamaForCausalLM):
    """A Llama that holds some weights as buffers: of a module that multiplies, but is no `torch.nn.Linear`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            held = layer.mlp.up_proj.weight
            layer.mlp.up_proj = Multiplied()
            layer.mlp.up_proj.register_buffer("weight", held.detach())


class Multiplied(torch.nn.Module):
    weight: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight)


def test_a_unit_that_lands_in_a_buffer_is_refused_by_name(folders: Callable[[str], Path]) -> None:
    refusal = refused(folders("llama"), model_class=Buffered)
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(2)]
    assert sorted((each.code, each.object, each.found) for each in refusal.violations) == [
        ("resident-placement", name, f"{name} of a Multiplied") for name in names
    ]
    buffered, _ = load_model(folders("llama"), dtype="BF16", resident=False, model_class=Buffered)
    ordinary, _ = load_model(folders("llama"), dtype="BF16", resident=True)
    assert torch.equal(logits(buffered), logits(ordinary))


def test_a_tree_that_was_produced_with_its_embedding_is_refused_by_name(tmp_path: Path) -> None:
    """`tensorhub produce` without `--skip` quantizes every matrix."""
    done("produce", tiny_models.dense_llama(tmp_path / "dense"), tmp_path / "made", "--to", ROWWISE)
    refusal = refused(tmp_path / "made")
    assert [(each.code, each.object) for each in refusal.violations] == [("resident-placement", "model.embed_tokens.weight")]


def test_a_head_that_is_tied_to_an_embedding_is_no_projection_of_its_own(tmp_path: Path) -> None:
    """The embedding would be filled from the head's unit, or the two compared: neither without a dense tensor."""
    tiny_models.fp8(dense_and_tied, tmp_path)

    def head(tensors: dict[str, torch.Tensor]) -> None:
        name = "lm_head.weight"
        tensors[name], tensors[f"{name}_scale_inv"] = tiny_models.quantize(tensors.pop("model.embed_tokens.weight"), torch.float32)

    refusal = refused(changed(tmp_path, head))
    assert {(each.code, each.object) for each in refusal.violations} == {("resident-placement", "lm_head.weight")}


def test_a_head_beside_a_tied_embedding(tmp_path: Path) -> None:
    """Both are stored, and the configuration ties them: whatever becomes of it, it is said."""
    tiny_models.fp8(dense_and_tied, tmp_path)

    def head(tensors: dict[str, torch.Tensor]) -> None:
        name = "lm_head.weight"
        tensors[name], tensors[f"{name}_scale_inv"] = tiny_models.quantize(tensors["model.embed_tokens.weight"], torch.float32)

    changed(tmp_path, head)
    refusal = refused(tmp_path)
    assert {(each.code, each.object) for each in refusal.violations} == {("resident-placement", "lm_head.weight")}


def test_a_loader_that_splits_or_transposes_a_unit_is_refused_by_name(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import core_model_loading, modeling_utils

    original = modeling_utils.get_model_conversion_mapping
    for operation in (core_model_loading.Transpose(0, 1), core_model_loading.Chunk(dim=0)):
        targets = ["mlp.gate_proj", "mlp.up_proj"] if isinstance(operation, core_model_loading.Chunk) else "mlp.gate_proj"

        def mapping(*arguments: Any, **named: Any) -> Any:
            converter = core_model_loading.WeightConverter("mlp.gate_proj", targets, operations=[operation])  # noqa: B023  # called at once
            return [*original(*arguments, **named), converter]

        monkeypatch.setattr(modeling_utils, "get_model_conversion_mapping", mapping)
        refusal = refused(folders("llama"))
        assert {each.code for each in refusal.violations} == {"resident-placement"}
        assert {each.object for each in refusal.violations} == {f"model.layers.{layer}.mlp.gate_proj.weight" for layer in range(2)}


@pytest.mark.parametrize(("lane", "code"), [("fp8-w8a8-dynamic", "floor-unmet"), ("bf16", "lane-unavailable")])
def test_lanes_that_cannot_run_here_are_refused(
    lane: str, code: str, folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorhub_contracts.lanes.requirements._torch_has_cuda", lambda: True)
    assert refused(folders("llama"), lane=lane).codes == (code,)


@pytest.mark.parametrize(("lane", "dtype"), [("fp8-w8a32", "BF16"), ("fp8-w8a16", "F32"), ("fp8-w8a16", "bfloat16")])
def test_a_dtype_of_another_lane_is_refused(lane: str, dtype: str, folders: Callable[[str], Path]) -> None:
    assert refused(folders("llama"), lane=lane, dtype=dtype).codes == ("lane-dtype",)


# ------------------------------------------------------------ memory, measured in a process of its own

MEASURE = """
import gc, json, sys, threading, time
import torch
from tensorhub_decoders.transformers_models.loading import load_model

def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024

def peak_of(function):
    gc.collect()
    before, peak, done = anonymous(), [0], []
    def watch():
        while not done:
            peak[0] = max(peak[0], anonymous())
            time.sleep(0.002)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    result = function()
    done.append(True)
    thread.join()
    return result, max(peak[0], anonymous()) - before


small, big = sys.argv[1:]
tokens = torch.arange(1, 9)[None]
torch.set_num_threads(2)  # each has its strips
warm, _ = load_model(small, dtype="BF16", resident=True)
with torch.no_grad():
    warm(tokens)
(model, report), loading = peak_of(lambda: load_model(big, dtype="BF16", resident=True))
shapes = {tuple(module.shape) for module in model.modules() if hasattr(module, "stored_weights")}
with torch.no_grad():
    _, running = peak_of(lambda: model(tokens))
floats = (torch.bfloat16, torch.float16, torch.float32)
tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]
wide = [tuple(each.shape) for each in tensors if each.dtype in floats and tuple(each.shape) in shapes]
stored = report.load.stored_bytes
del model, report
_, upcast = peak_of(lambda: load_model(big, dtype="BF16", resident=False))
print(json.dumps([stored, loading, running, upcast, wide]))
"""


def test_loading_and_running_take_no_dense_copy(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """A model of 130 MB: loading grows memory by the stored bytes, running by strips, and nothing dense of a unit's shape is alive."""
    config = tiny_models.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=16, vocab_size=256,
        tie_word_embeddings=False, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in tiny_models.LlamaForCausalLM(config).state_dict().items()}
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith("_proj.weight"):
            tensors[name] = torch.full(shape, 0x21, dtype=torch.uint8).view(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.full((shape[0] // 128, shape[1] // 128), 1e-2)
        else:
            tensors[name] = torch.ones(shape, dtype=torch.bfloat16)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config.quantization_config = dict(tiny_models._DECLARATION)
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False), "utf-8")
    arguments = [sys.executable, "-c", MEASURE, str(folders("llama")), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stored, loading, running, upcast, wide = json.loads(done.stdout.strip().splitlines()[-1])
    print(stored >> 20, loading >> 20, running >> 20, upcast >> 20)
    assert stored > 130e6
    assert loading <= stored + (64 << 20), f"{loading >> 20} MB for {stored >> 20} MB"
    assert running <= 24 << 20, f"{running >> 20} MB, where one unit is 32 MB in BF16"
    assert wide == []
    assert upcast > 1.7 * stored, "the control: a dense copy is seen"

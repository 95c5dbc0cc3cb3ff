"""`load(resident=True)`: each unit is a module on the stored bytes, and bad values are refused together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.resident.experts import StackedExperts
from tensorhub_decoders.resident.linear import BlockFp8Linear, ResidentLinear, ResidentModule, RowFp8Linear
from torch.nn import functional

from tensorhub_contracts import Refusal, load
from tests.support.conversions import BLOCKWISE, ROWWISE, done, noise, save, small_model
from tests.support.environments import ROOT, build_wheel


def tree(folder: Path, **changes: torch.Tensor) -> tuple[Path, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    tensors = {
        "a.weight": torch.randn(130, 256).to(torch.float8_e4m3fn),
        "a.weight_scale_inv": torch.rand(2, 2),
        "experts.gate_up": torch.randn(3, 130, 256).to(torch.float8_e4m3fn),
        "experts.gate_up_scale_inv": torch.rand(3, 2, 2),
        "norm.weight": torch.ones(7, dtype=torch.bfloat16),
    } | {name.replace("__", "."): tensor for name, tensor in changes.items()}
    save_file(tensors, folder / "model.safetensors")
    declared = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps({"quantization_config": declared}))
    return folder, tensors


@pytest.mark.parametrize(("lane", "dtype"), [("fp8-w8a16", "BF16"), ("fp8-w8a16", "F16"), ("fp8-w8a32", "F32")])
def test_units_are_modules_on_the_stored_bytes(lane: str, dtype: str, tmp_path: Path) -> None:
    folder, stored = tree(tmp_path)
    loaded = load(folder, dtype=dtype, lane=lane, resident=True)
    assert set(loaded.weights) == {"a.weight", "experts.gate_up", "norm.weight"}
    linear, stack = loaded.weights["a.weight"], loaded.weights["experts.gate_up"]
    assert (type(linear), type(stack)) == (BlockFp8Linear, StackedExperts)
    state = {f"a.{name}": tensor for name, tensor in linear.state_dict().items()}
    state |= {f"experts.{name}": tensor for name, tensor in stack.state_dict().items()}
    assert set(state) == set(stored) - {"norm.weight"}
    assert all(torch.equal(state[name].view(torch.uint8), stored[name].view(torch.uint8)) for name in state)
    total = sum(tensor.nbytes for tensor in stored.values())
    assert (loaded.report.resident, loaded.report.resident_bytes, loaded.report.stored_bytes) == (True, total, total)
    path = f"cpu.strip_upcast_w8a{32 if dtype == 'F32' else 16}"
    assert {name: set(units) for name, units in loaded.report.compute_paths.items()} == {path: {"a.weight", "experts.gate_up"}}


def test_rowwise_units_are_modules_too(tmp_path: Path) -> None:
    weight, scale = torch.randn(130, 256).to(torch.float8_e4m3fn), torch.rand(130)
    save_file({"a.weight": weight, "a.weight_scale": scale}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    loaded = load(tmp_path, dtype="BF16", resident=True)
    module = loaded.weights["a.weight"]
    assert type(module) is RowFp8Linear
    assert torch.equal(module.scale, scale)
    assert loaded.report.contract == "cozy.fp8-rowwise@1"


def test_every_unit_with_bad_values_is_named_with_its_count(tmp_path: Path) -> None:
    nan = torch.randn(130, 256).to(torch.float8_e4m3fn)
    nan.view(torch.uint8)[3, :5] = 0x7F
    scale = torch.ones(3, 2, 2)
    scale[1, 0, 0], scale[2, 1, 1], scale[0, 0, 1] = float("nan"), -1.0, float("inf")
    folder, _ = tree(tmp_path, a__weight=nan, experts__gate_up_scale_inv=scale)
    with pytest.raises(Refusal) as caught:
        load(folder, dtype="BF16", resident=True)
    assert sorted((each.code, each.object, each.found) for each in caught.value.violations) == [
        ("payload-values", "a.weight", "5 NaN codes"),
        ("payload-values", "experts.gate_up", "3 scales that are negative or not finite"),
    ]
    load(folder, dtype="BF16", resident=False)


@pytest.mark.parametrize("arguments", [{"device": "meta"}, {"device": "mps"}])
def test_other_devices_are_refused(arguments: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = tree(tmp_path)
    with pytest.raises(Refusal) as caught:
        load(folder, dtype="BF16", resident=True, **arguments)
    assert caught.value.codes == ("load-unsupported",)


def test_a_decoder_that_only_decodes_ahead_of_time_is_refused_by_name(tmp_path: Path) -> None:
    save_file({"a.weight": torch.randn(130, 256).to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refusal) as caught:
        load(tmp_path, dtype="BF16", resident=True, contract="cozy.fp8-storage@1")
    (violation,) = caught.value.violations
    assert (violation.code, violation.object) == ("load-unsupported", "tensorhub_decoders.cozy_fp8_storage:decode_cozy_fp8_storage")
    assert "resident=False" in violation.remedy


ASK_A_PLUGIN = """
import json, sys
from tensorhub_contracts import Refusal, load
found = []
for arguments in ({"resident": True}, {"resident": True, "device": "cuda"}, {"resident": False, "device": "cuda"}):
    try:
        load(sys.argv[1], dtype="BF16", **arguments)
    except Refusal as refusal:
        found.append([(each.code, each.object, each.expected) for each in refusal.violations])
early = "torch" in sys.modules
loaded = load(sys.argv[1], dtype="BF16", resident=False)
print(json.dumps([found, early, loaded.report.decoder, loaded.report.distribution, loaded.weights["a.weight"].tolist()]))
"""


def test_a_plugin_that_knows_neither_residency_nor_devices_is_refused_by_name(tmp_path: Path) -> None:
    """The template's wheel, unpacked onto the path of another process: by its decoder, before anything is decoded."""
    with zipfile.ZipFile(build_wheel(ROOT / "template", tmp_path / "wheel")) as wheel:
        wheel.extractall(tmp_path / "site")
    tree = tmp_path / "tree"
    tree.mkdir()
    save_file({"a.weight": torch.tensor([[3, -5]], dtype=torch.int8), "a.weight_scale": torch.tensor([0.5])}, tree / "model.safetensors")
    (tree / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "acme-int8"}}))
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", ASK_A_PLUGIN, tree], capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, early, decoder, distribution, weight = json.loads(done.stdout)
    assert (decoder, distribution, weight) == ("acme_int8.plugin:decode_int8_channel", "acme-int8", [[1.5, -2.5]])
    resident, device = (["load-unsupported", decoder, f"a decoder that takes `{what}`"] for what in ("resident", "device"))
    assert found == [[resident], [resident, device], [device]]
    assert not early, "refused without torch"


@pytest.mark.parametrize("contract", [BLOCKWISE, ROWWISE])
def test_what_produce_writes_loads_resident(contract: str, tmp_path: Path) -> None:
    """Every matrix and every stack, of odd shapes: the bytes of the file, and the numbers of the upcast weight."""
    dense = save(tmp_path / "dense", small_model(), config={})
    quantized = done("produce", dense, tmp_path / "made", "--to", contract)["quantized"]
    stored = {name: tensor for path in sorted((tmp_path / "made").glob("*.safetensors")) for name, tensor in load_file(path).items()}
    loaded = load(tmp_path / "made", dtype="BF16", resident=True)
    upcast = load(tmp_path / "made", dtype="BF16", resident=False)
    assert loaded.report.contract == contract
    modules = {name: module for name, module in loaded.weights.items() if isinstance(module, ResidentModule)}
    assert set(modules) == set(quantized)
    assert any("experts" in name for name in modules) == (contract == BLOCKWISE)
    suffix = "_scale_inv" if contract == BLOCKWISE else "_scale"
    for name, module in modules.items():
        (held,) = (unit for _, _, unit in module.stored_weights())
        assert torch.equal(held.weight.view(torch.uint8), stored[name].view(torch.uint8)), name
        assert torch.equal(held.scale, stored[f"{name}{suffix}"]), name
        x = noise(5, module.shape[-1])
        operands = [module.weight] if isinstance(module, ResidentLinear) else list(module)
        for operand, matrix in zip(operands, upcast.weights[name].view(-1, *module.shape[-2:]), strict=True):
            assert torch.equal(functional.linear(x, operand), functional.linear(x, matrix)), name
    others = set(loaded.weights) - set(modules)
    assert all(torch.equal(loaded.weights[name], stored[name]) for name in others)
    assert others | set(modules) == {name for name in stored if not name.endswith(suffix)}

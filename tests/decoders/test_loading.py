"""Loading: what the verdict names is what runs, every byte is written, and whatever goes wrong is said and not worked around."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorhub_decoders.upcast.cutting as cutting
import tensorhub_decoders.upcast.strips as upcast_strips
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.hf_fp8_blockwise import decode_hf_fp8_blockwise
from tensorhub_decoders.upcast import buffers as arenas
from tensorhub_decoders.upcast import streaming
from tensorhub_decoders.upcast.reference import dequantize_block_scaled

from tensorhub_contracts import DecodedTensor, Refusal, inspect, load
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing.numbers import encoded, rounded_to_f32
from tensorhub_contracts.testing.reference_formulas import FORMULAS
from tensorhub_contracts.testing.sample_units import StoredTensor, sample_units, unquantized_tensors, write_tree
from tests.support.tiny_models import dense_llama, fp8_llama, fp8_qwen3_moe

BLOCKWISE = "hf.fp8-blockwise@1"
QUANTIZED = [BLOCKWISE, "cozy.fp8-rowwise@1", "cozy.fp8-storage@1"]
NAMES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint for all tests, which change copies of it only."""
    folder = tmp_path_factory.mktemp("llama")
    fp8_llama(folder)
    return folder


def sample(folder: Path, contract: str) -> Path:
    facts = load_registry().contracts[contract]
    tensors = unquantized_tensors(facts)
    for unit in sample_units(facts):
        tensors |= {unit.names[role]: tensor for role, tensor in unit.tensors.items()}
    return write_tree(folder, facts, tensors)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def same(found: torch.Tensor, expected: bytes) -> bool:
    """Bit for bit, with NaN as a class."""
    wanted = torch.frombuffer(bytearray(expected), dtype=found.dtype).view(found.shape)
    bits = {2: torch.int16, 4: torch.int32}[found.dtype.itemsize]
    return bool(((found.view(bits) == wanted.view(bits)) | (found.isnan() & wanted.isnan())).all())


@pytest.mark.parametrize(("lane", "dtype"), [("fp8-w8a16", "BF16"), ("fp8-w8a16+compiled", "F16"), ("fp8-w8a32", "F32")])
@pytest.mark.parametrize("contract", QUANTIZED)
def test_what_is_loaded_is_the_formula(contract: str, lane: str, dtype: str, tmp_path: Path) -> None:
    loaded = load(sample(tmp_path, contract), contract=contract, lane=lane, dtype=dtype, resident=False)  # by name: all codes occur
    facts = load_registry().contracts[contract]
    units = list(sample_units(facts))
    for unit in units:
        name = unit.names["weight"]
        numbers = [rounded_to_f32(value) for value in FORMULAS[facts.reference_dequant](unit)]
        assert loaded.weights[name].dtype is NAMES[dtype]
        assert same(loaded.weights[name], encoded(dtype, numbers)), name
    for name, tensor in unquantized_tensors(facts).items():
        assert bytes_of(loaded.weights[name]) == tensor.data
    report = loaded.report
    assert report.lane.startswith(lane)
    assert (report.lanes_asked, report.contract, report.dtype, report.resident) == ((lane,), contract, dtype, False)
    assert {path: sorted(names) for path, names in report.compute_paths.items()} == {
        "cpu.upcast": sorted(unit.names["weight"] for unit in units)
    }
    assert sorted(loaded.weights) == sorted([*(unit.names["weight"] for unit in units), *unquantized_tensors(facts)])


def test_the_report_agrees_with_measured_storage(llama: Path) -> None:
    """FP8 that was loaded and never used could not pass: what is resident is two bytes an element, and no scale."""
    loaded = load(llama, dtype="BF16", resident=False)
    stored = load_file(llama / "model.safetensors")
    assert loaded.report.stored_bytes == sum(tensor.nbytes for tensor in stored.values())
    elements = sum(tensor.numel() for name, tensor in stored.items() if not name.endswith("_scale_inv"))
    assert loaded.report.resident_bytes == 2 * elements
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in loaded.weights.values()}
    assert len(storages) == 1, "one arena, and not a memory for each tensor"
    assert sum(storages.values()) <= 2 * elements + arenas.ALIGNMENT * len(loaded.weights)


@pytest.mark.parametrize("make", [fp8_llama, fp8_qwen3_moe], ids=["llama", "qwen3-moe"])
def test_a_real_models_weights_equal_the_reference(make: Any, tmp_path: Path) -> None:
    make(tmp_path)
    stored = {name: tensor for shard in tmp_path.glob("*.safetensors") for name, tensor in load_file(shard).items()}
    loaded = load(tmp_path, dtype="BF16", resident=False)
    scales = {name for name in stored if name.endswith("_scale_inv")}
    assert set(loaded.weights) == set(stored) - scales, "every scale is used up, and nothing else is missing"
    for name, tensor in loaded.weights.items():
        scale = stored.get(f"{name}_scale_inv")
        expected = stored[name] if scale is None else dequantize_block_scaled(stored[name], scale, out_dtype=torch.bfloat16)
        assert bytes_of(tensor) == bytes_of(expected), name
    assert set(loaded.report.compute_paths["cpu.upcast"]) == {name.removesuffix("_scale_inv") for name in scales}


def test_a_dense_model_is_as_it_is_stored_and_is_cast_where_that_is_asked_for(tmp_path: Path) -> None:
    dense_llama(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    loaded = load(tmp_path, dtype="BF16", resident=False)
    assert loaded.report.compute_paths == {}
    assert all(bytes_of(loaded.weights[name]) == bytes_of(tensor) for name, tensor in stored.items())
    cast = load(tmp_path, dtype="F16", resident=False)
    matrices = [name for name, tensor in stored.items() if tensor.dim() > 1]
    assert sorted(cast.report.compute_paths["cpu.cast"]) == sorted(matrices)
    assert all(bytes_of(cast.weights[name]) == bytes_of(stored[name].to(torch.float16)) for name in matrices)


def test_shards_components_and_single_files(llama: Path, tmp_path: Path) -> None:
    """The same tensors in four shards, as a component of a pipeline, and as a file by itself."""
    whole = load(llama, dtype="BF16", resident=False).weights
    stored = load_file(llama / "model.safetensors")
    component = tmp_path / "pipeline" / "transformer"
    component.mkdir(parents=True)
    (tmp_path / "pipeline" / "model_index.json").write_text(json.dumps({"_class_name": "P", "transformer": ["diffusers", "T"]}))
    names = sorted(stored)
    weight_map = {}
    for number in range(4):
        shard = f"model-{number + 1:05d}-of-00004.safetensors"
        part = {name: stored[name] for name in names[number::4]}
        save_file(part, component / shard)
        weight_map |= dict.fromkeys(part, shard)
    (component / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (component / "config.json").write_text((llama / "config.json").read_text())
    for loaded in (
        load(component, dtype="BF16", resident=False),
        load(tmp_path / "pipeline", "transformer", dtype="BF16", resident=False),
        load(llama / "model.safetensors", dtype="BF16", resident=False),
    ):
        assert set(loaded.weights) == set(whole)
        assert all(torch.equal(loaded.weights[name].view(torch.int16), whole[name].view(torch.int16)) for name in whole)


# ------------------------------------------------------------ every byte, whatever memory held before


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory that is anything but zero."""

    def arena(size: int) -> torch.Tensor:
        return torch.full((size,), 0xAB, dtype=torch.uint8)

    monkeypatch.setattr(arenas, "_arena", arena)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("strip", [1 << 20, 700])
def test_every_byte_is_written(workers: int, strip: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sample(tmp_path, BLOCKWISE)
    expected = load(folder, dtype="BF16", resident=False).weights
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", strip)
    monkeypatch.setattr(streaming.os, "sched_getaffinity", lambda _: range(workers))
    monkeypatch.setattr(arenas, "ARENA_BYTES", 100_000)
    decoded = list(decode_hf_fp8_blockwise(inspect(folder), lane="fp8-w8a16+eager", dtype="BF16"))
    assert {each.name for each in decoded} == set(expected)
    for name, tensor, _ in decoded:
        assert same(tensor, bytes_of(expected[name])) if tensor.dtype is torch.bfloat16 else bytes_of(tensor) == bytes_of(expected[name])


def test_memory_of_a_stream_goes_back_with_its_tensors(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller who keeps nothing holds a few arenas, and not the whole checkpoint."""
    monkeypatch.setattr(arenas, "ARENA_BYTES", 65_536)
    alive: list[Any] = []
    made = arenas._arena

    def counted(size: int) -> torch.Tensor:
        import weakref

        room = made(size)
        alive.append(weakref.ref(room.untyped_storage()))
        return room

    monkeypatch.setattr(arenas, "_arena", counted)
    most = 0
    for _ in decode_hf_fp8_blockwise(inspect(llama), lane="fp8-w8a16+eager", dtype="BF16"):
        most = max(most, sum(storage() is not None for storage in alive))
    assert len(alive) > 8
    assert most < len(alive)


def test_tensors_begin_at_multiples_of_a_cache_line(llama: Path) -> None:
    weights = load(llama, dtype="BF16", resident=False).weights.values()
    assert all(tensor.data_ptr() % arenas.ALIGNMENT == 0 for tensor in weights)
    spans = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in weights)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), "no two tensors share a byte"


# ------------------------------------------------------------ refusals and errors


@pytest.fixture
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lanes of kernels be claimed, which they are where torch is built with CUDA: what refuses them then is asked for here."""
    monkeypatch.setattr("tensorhub_contracts.lanes.requirements._torch_has_cuda", lambda: True)


@pytest.mark.usefixtures("torch_with_cuda")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"device": "cuda"}, "load-unsupported"),
        ({"device": "cuda", "resident": True}, "load-unsupported"),
        ({"lane": "fp8-w8a8-dynamic"}, "floor-unmet"),
        ({"lane": "fp8-w8a8-dynamic", "sm": 90}, "load-unsupported"),  # it multiplies stored codes, and they are upcast
        ({"lane": "fp8-w8a8-dynamic", "sm": 90, "resident": True}, "load-unsupported"),  # on the CPU
        ({"lane": "bf16"}, "lane-unavailable"),
        ({"lane": "fp8_w8a16"}, "lane-malformed"),
        ({"lane": "FP8-W8A32"}, "lane-dtype"),
        ({"dtype": "F32"}, "lane-dtype"),
        ({"dtype": "bfloat16"}, "lane-dtype"),
        ({"lane": "fp8-w8a32", "dtype": "BF16"}, "lane-dtype"),
    ],
)
def test_what_cannot_be_had_is_refused(arguments: dict[str, Any], code: str, llama: Path) -> None:
    with pytest.raises(Refusal) as caught:
        load(llama, **{"dtype": "BF16", "resident": False, **arguments})
    assert caught.value.codes == (code,)


@pytest.mark.usefixtures("torch_with_cuda")
def test_another_lane_is_taken_only_if_the_caller_names_it_and_is_reported(llama: Path) -> None:
    report = load(llama, lane=("fp8-w8a8-dynamic", "fp8-w8a16"), dtype="BF16", resident=True).report
    assert (report.lanes_asked, report.lane) == (("fp8-w8a8-dynamic", "fp8-w8a16"), "fp8-w8a16+eager")
    assert [(each.lane, [violation.code for violation in each.violations]) for each in report.unsupported] == [
        ("fp8-w8a8-dynamic", ["floor-unmet"])
    ]
    assert set(report.compute_paths) == {"cpu.strip_upcast_w8a16"}
    with pytest.raises(Refusal) as caught:
        load(llama, lane="fp8-w8a8-dynamic", dtype="BF16", resident=True)
    assert caught.value.codes == ("floor-unmet",)


@pytest.mark.usefixtures("torch_with_cuda")
def test_where_no_lane_is_supported_each_says_why(llama: Path) -> None:
    with pytest.raises(Refusal) as caught:
        load(llama, lane=["fp8-w8a8-dynamic", "nvfp4-w4a4-static", "bf16"], dtype="BF16", resident=True)
    assert {(each.code, each.object) for each in caught.value.violations} >= {
        ("floor-unmet", "fp8-w8a8-dynamic"),
        ("lane-unavailable", "nvfp4-w4a4-static"),
        ("lane-unavailable", "bf16"),
    }


@pytest.mark.parametrize(
    ("lanes", "dtype", "code"),
    [(("fp8-w8a32", "fp8-w8a16"), "BF16", "lane-dtype"), (("fp8_w8a16", "fp8-w8a16"), "BF16", "lane-malformed")],
)
def test_nothing_but_what_is_not_supported_here_moves_a_load_on(lanes: tuple[str, ...], dtype: str, code: str, llama: Path) -> None:
    with pytest.raises(Refusal) as caught:
        load(llama, lane=lanes, dtype=dtype, resident=False)
    assert caught.value.codes == (code,)


def test_a_bad_value_moves_no_load_on(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    content = bytearray((llama / "model.safetensors").read_bytes())
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    begin = header["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    content[8 + int.from_bytes(content[:8], "little") + begin] = 0x7F
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(Refusal) as caught:
        load(tmp_path, lane=("fp8-w8a16", "fp8-w8a32"), dtype="BF16", resident=True)
    assert caught.value.codes == ("payload-values",)


def test_a_transposed_grid_is_refused_by_name_through_this_door_too(llama: Path, tmp_path: Path) -> None:
    stored = load_file(llama / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight_scale_inv"
    save_file({**stored, name: stored[name].t().contiguous()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    with pytest.raises(Refusal) as caught:
        load(tmp_path, dtype="BF16", resident=False)
    assert [(each.code, each.object) for each in caught.value.violations] == [("scale-grid-transposed", name)]


def test_a_programming_error_of_a_decoder_propagates(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a typed refusal may lead elsewhere, and here nothing does."""

    def broken(*_: object, **__: object) -> None:
        raise TypeError("tuple has no attribute dtype")

    monkeypatch.setattr(upcast_strips, "upcast_block_scaled", broken)
    with pytest.raises(TypeError, match="tuple has no attribute dtype"):
        load(llama, dtype="BF16", resident=False)


def test_a_decoder_of_another_contract_refuses(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        decode_hf_fp8_blockwise(inspect(sample(tmp_path, "cozy.fp8-rowwise@1")), lane="fp8-w8a16+eager", dtype="BF16")
    assert caught.value.codes == ("contract-mismatch",)


@pytest.mark.parametrize("change", ["shorter", "other header", "gone"])
def test_a_file_that_changed_since_it_was_inspected_is_refused(change: str, llama: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes((llama / name).read_bytes())
    inspection = inspect(tmp_path)
    path = tmp_path / "model.safetensors"
    if change == "shorter":
        os.truncate(path, path.stat().st_size - 1)
    elif change == "other header":
        content = bytearray(path.read_bytes())
        place = content.index(b"model.layers.0")
        content[place : place + 14] = b"model.layers.7"
        path.write_bytes(content)
    else:
        path.unlink()
    with pytest.raises(Refusal) as caught:
        list(decode_hf_fp8_blockwise(inspection, lane="fp8-w8a16+eager", dtype="BF16"))
    assert caught.value.codes == ("file-changed",)


def test_nothing_stays_open_and_torch_keeps_its_threads(llama: Path) -> None:
    def open_files() -> set[str]:
        return {os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{each}")}

    threads = torch.get_num_threads()
    decoded: Iterator[DecodedTensor] = decode_hf_fp8_blockwise(inspect(llama), lane="fp8-w8a16+eager", dtype="BF16")
    next(decoded)
    assert any(name.endswith("model.safetensors") for name in open_files())
    decoded.close()  # type: ignore[attr-defined]  # a generator
    assert not any(name.endswith("model.safetensors") for name in open_files())
    load(llama, dtype="BF16", resident=False)
    assert not any(name.endswith("model.safetensors") for name in open_files())
    assert torch.get_num_threads() == threads


def test_stored_tensor_is_what_the_kit_says() -> None:
    """The samples above hold what they claim: all codes, NaN among them."""
    weights = [unit.tensors["weight"] for unit in sample_units(load_registry().contracts[BLOCKWISE])]
    assert all(isinstance(weight, StoredTensor) for weight in weights)
    assert any(set(weight.data) == set(range(256)) for weight in weights)


MEASURE = """
import sys, threading, time, json
from tensorhub_contracts import load
import torch, tensorhub_decoders.upcast.streaming
def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024
before, peak, done = anonymous(), [0], []
def watch():
    while not done:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)
thread = threading.Thread(target=watch, daemon=True)
thread.start()
loaded = load(sys.argv[1], dtype="BF16", resident=False)
done.append(True)
thread.join()
print(json.dumps([max(peak[0], anonymous()) - before, loaded.report.resident_bytes]))
"""


def test_memory_grows_by_the_output_and_a_bounded_scratch(tmp_path: Path) -> None:
    tensors = {}
    for number in range(12):
        tensors[f"layers.{number}.proj.weight"] = torch.zeros(4096, 4096, dtype=torch.uint8).view(torch.float8_e4m3fn)
        tensors[f"layers.{number}.proj.weight_scale_inv"] = torch.ones(32, 32)
    save_file(tensors, tmp_path / "model.safetensors")
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    grown, output = json.loads(done.stdout)
    assert output == 12 * 2 * 4096 * 4096
    assert grown <= output * 1.03 + (64 << 20), f"grown by {grown / 2**20:.0f} MB for an output of {output / 2**20:.0f} MB"

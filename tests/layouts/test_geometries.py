"""Published checkpoints in their true geometry: verdict, counts, and that the stand-ins are what they claim to be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect
from tests.support import geometries
from tests.support.trees import BLOCKWISE, assert_accepted, noted


@pytest.fixture(scope="module")
def h3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return geometries.h3_conditioner(tmp_path_factory.mktemp("h3"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return geometries.qwen38_27b(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Inspection]:
    folder = geometries.deepseek_v3(tmp_path_factory.mktemp("deepseek"))
    return folder, inspect(folder)


def apparent_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def size_on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def header_of(path: Path) -> bytes:
    """Return the length and the header."""
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def is_multi_token(name: str) -> bool:
    return name.startswith(("mtp.", "model.layers.61."))


def test_h3_conditioner(h3: Path) -> None:
    inspection = inspect(h3)
    assert_accepted(inspection, BLOCKWISE, 357)
    assert {each.layout.scale_dtype for each in inspection.units} == {"F32"}
    assert inspection.checkpoint is not None
    assert len(inspection.checkpoint.tensors) == 1271
    assert apparent_size(h3) == 27_620_655_224
    assert size_on_disk(h3) < 1_000_000
    assert not inspection.exclusions.contradicted


def test_h3_conditioner_as_a_file_and_without_its_configuration(h3: Path, tmp_path: Path) -> None:
    assert_accepted(inspect(h3 / "model.safetensors"), BLOCKWISE, 357)
    (tmp_path / "model.safetensors").symlink_to(h3 / "model.safetensors")
    bare = inspect(tmp_path)
    assert bare.codes == ("declaration-missing", "layout-undeclared")
    assert bare.resembles == (BLOCKWISE,)


def test_qwen38_27b(qwen: Path) -> None:
    inspection = inspect(qwen)
    assert_accepted(inspection, BLOCKWISE, 407)
    assert {each.layout.scale_dtype for each in inspection.units} == {"BF16"}
    assert sum(is_multi_token(name) for name in inspection.layouts) == 7
    grids = {name.rpartition("layers.")[2].partition(".")[2]: unit.grid for name, unit in inspection.layouts.items()}
    assert grids == {
        "linear_attn.in_proj_qkv.weight": (80, 40),
        "linear_attn.in_proj_z.weight": (48, 40),
        "linear_attn.out_proj.weight": (40, 48),
        "self_attn.q_proj.weight": (96, 40),
        "self_attn.k_proj.weight": (8, 40),
        "self_attn.v_proj.weight": (8, 40),
        "self_attn.o_proj.weight": (40, 48),
        "mlp.gate_proj.weight": (136, 40),
        "mlp.up_proj.weight": (136, 40),
        "mlp.down_proj.weight": (40, 136),
    }
    assert size_on_disk(qwen) < 3_000_000
    assert 30_000_000_000 < apparent_size(qwen) < 32_000_000_000


def test_qwen38_27b_is_the_published_census(qwen: Path) -> None:
    tensors = list(geometries.qwen38_27b_tensors())
    names = [name for name, _, _ in tensors]
    assert len(names) == len(set(names)) == 1606
    assert Counter(dtype for _, dtype, _ in tensors) == {"BF16": 1199, "F8_E4M3": 407}
    parts = Counter("mtp" if name.startswith("mtp.") else "visual" if ".visual." in name else "text" for name in names)
    assert parts == {"text": 1251, "visual": 333, "mtp": 22}
    quantized = [name for name, dtype, _ in tensors if dtype == "F8_E4M3"]
    kinds = Counter("mtp" if is_multi_token(name) else name.split(".")[4] for name in quantized)
    assert kinds == {"linear_attn": 144, "self_attn": 64, "mlp": 192, "mtp": 7}
    assert len(list(qwen.glob("*.safetensors"))) == 66
    entries = json.loads((qwen / "config.json").read_text())["quantization_config"]["modules_to_not_convert"]
    assert len(entries) == len(set(entries)) == 882


def test_qwen38_27b_exclusions_are_cross_checked_with_every_dense_tensor(qwen: Path) -> None:
    """530 entries name a module of an unquantized tensor, vectors and convolutions included; 352 bear a prefix that the tree lacks."""
    report = inspect(qwen).exclusions
    assert report.entries == 882
    assert not report.contradicted
    assert not report.unlisted
    assert (report.matched, len(report.unmatched)) == (530, 352)


def test_deepseek_v3(deepseek: tuple[Path, Inspection]) -> None:
    folder, inspection = deepseek
    assert_accepted(inspection, BLOCKWISE, 45_808)
    assert {each.layout.scale_dtype for each in inspection.units} == {"F32"}
    assert inspection.checkpoint is not None
    assert len(inspection.checkpoint.tensors) == 91_991
    assert len(inspection.checkpoint.shards) == 163
    assert inspection.layouts["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"].grid == (5, 56)
    assert sum(is_multi_token(name) for name in inspection.layouts) == 5 + 257 * 3
    assert 688_000_000_000 < apparent_size(folder) < 690_000_000_000
    assert size_on_disk(folder) < 40_000_000
    assert not noted(inspection, "expert numbers")


def test_deepseek_v3_really_splits_pairs_across_shards(deepseek: tuple[Path, Inspection]) -> None:
    _, inspection = deepseek
    assert inspection.checkpoint is not None
    shard_of = inspection.checkpoint.shard_of
    split = [name for name in inspection.layouts if shard_of[name] != shard_of[f"{name}_scale_inv"]]
    assert len(split) > 100


def test_deepseek_v3_reads_headers_and_nothing_else(deepseek: tuple[Path, Inspection]) -> None:
    folder, inspection = deepseek
    assert inspection.checkpoint is not None
    headers = sum(len(header_of(path)) for path in folder.glob("*.safetensors"))
    other = sum((folder / name).stat().st_size for name in ("config.json", "model.safetensors.index.json"))
    assert inspection.checkpoint.bytes_read == headers + other


@pytest.mark.parametrize("layer", [30, 61])
def test_one_bad_grid_among_45_808_units_is_found(deepseek: tuple[Path, Inspection], layer: int, tmp_path: Path) -> None:
    """Layer 61 predicts further tokens; most readers skip it, and its grids are validated all the same."""
    folder, inspection = deepseek
    assert inspection.checkpoint is not None
    bad = f"model.layers.{layer}.mlp.experts.200.down_proj.weight_scale_inv"
    holder = inspection.checkpoint.shard_of[bad]
    for path in folder.iterdir():
        if path.name != holder:
            (tmp_path / path.name).symlink_to(path)
    raw = header_of(folder / holder)
    before, name, after = raw.partition(f'"{bad}":'.encode())
    changed = before + name + after.replace(b"[56,16]", b"[16,56]", 1)
    assert len(changed) == len(raw)
    assert changed != raw
    with (tmp_path / holder).open("wb") as file:
        file.write(changed)
        file.truncate((folder / holder).stat().st_size)
    refused = inspect(tmp_path)
    (violation,) = refused.violations
    assert (violation.code, violation.object, violation.shard) == ("scale-grid-transposed", bad, holder)
    assert "[56, 16]" in violation.expected
    assert "[16, 56]" in violation.found


@pytest.mark.parametrize("write", [geometries.h3_conditioner, geometries.qwen38_27b])
def test_writing_is_deterministic(write: Callable[[Path], Path], tmp_path: Path) -> None:
    first, second = inspect(write(tmp_path / "a")), inspect(write(tmp_path / "b"))
    assert first.checkpoint is not None
    assert second.checkpoint is not None
    assert first.checkpoint.headers_digest == second.checkpoint.headers_digest

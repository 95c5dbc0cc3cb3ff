"""Checkpoints that real libraries wrote, from tiny models built from a configuration: what the verifier says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tests.support.trees import BLOCKWISE, assert_accepted, assert_named_without_decoder, noted, why

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("compressed_tensors")

from safetensors.torch import load_file  # noqa: E402

from tests.support import tiny_models  # noqa: E402  # after the check that its libraries are there

ATTENTION = {"q_proj": (2, 2), "k_proj": (1, 2), "v_proj": (1, 2), "o_proj": (2, 2)}
FEED_FORWARD = {"gate_proj": (3, 2), "up_proj": (3, 2), "down_proj": (2, 3)}
EXPERT = {"gate_proj": (2, 2), "up_proj": (2, 2), "down_proj": (2, 2)}


def grids(attention: str, modules: dict[str, dict[str, tuple[int, int]]]) -> dict[str, tuple[int, ...]]:
    """Return the units that both layers hold, with their grids."""
    return {
        f"model.layers.{layer}.{prefix}.{module}.weight": grid
        for layer in range(2)
        for prefix, sizes in {attention: ATTENTION, **modules}.items()
        for module, grid in sizes.items()
    }


LLAMA = grids("self_attn", {"mlp": FEED_FORWARD})
MOE = grids("self_attn", {f"mlp.experts.{expert}": EXPERT for expert in range(4)})


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def test_a_dense_llama(tmp_path: Path) -> None:
    inspection = inspect(tiny_models.dense_llama(tmp_path))
    assert_accepted(inspection, "plain.bf16@1", 0)
    assert not inspection.notes


def test_a_dense_qwen3_moe(tmp_path: Path) -> None:
    assert_accepted(inspect(tiny_models.dense_qwen3_moe(tmp_path)), "plain.bf16@1", 0)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "F32"), (torch.bfloat16, "BF16"), (torch.float16, "F16")])
def test_a_block_fp8_llama(dtype: torch.dtype, name: str, tmp_path: Path) -> None:
    inspection = inspect(tiny_models.fp8_llama(tmp_path, dtype))
    assert_accepted(inspection, BLOCKWISE, LLAMA)
    assert {each.layout.scale_dtype for each in inspection.units} == {name}
    assert not inspection.exclusions.contradicted
    assert not inspection.exclusions.unlisted


def test_a_block_fp8_qwen3_moe_in_two_shards(tmp_path: Path) -> None:
    inspection = inspect(tiny_models.fp8_qwen3_moe(tmp_path))
    assert_accepted(inspection, BLOCKWISE, MOE)
    assert len(inspection.layouts) == 32
    assert inspection.checkpoint is not None
    shard_of = inspection.checkpoint.shard_of
    assert any(shard_of[name] != shard_of[f"{name}_scale_inv"] for name in inspection.layouts)
    assert not noted(inspection, "expert numbers")


@pytest.mark.parametrize("write", [tiny_models.fp8_llama, tiny_models.fp8_qwen3_moe])
def test_exactly_the_units_with_as_many_blocks_down_as_across_are_not_proved_in_orientation(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    inspection = inspect(write(tmp_path))
    listed = {name for what, names in inspection.not_provable if "orientation" in what for name in names}
    assert listed == {each.name for each in inspection.units if each.layout.grid == (2, 2)}
    assert listed


@pytest.mark.parametrize(
    ("scheme", "contract", "grid"),
    [("FP8_BLOCK", "compressed-tensors.fp8-block@1", (2, 3)), ("FP8_DYNAMIC", "compressed-tensors.fp8-channel@1", (192, 1))],
)
def test_what_compressed_tensors_writes_is_recognized(scheme: str, contract: str, grid: tuple[int, int], tmp_path: Path) -> None:
    inspection = inspect(tiny_models.compressed_llama(tmp_path, scheme))
    assert_named_without_decoder(inspection, contract)
    assert len(inspection.layouts) == 14
    assert inspection.layouts["model.layers.0.mlp.down_proj.weight"].grid == grid
    asked = inspect(tmp_path, contract=BLOCKWISE)
    assert {"declaration-mismatch", "scale-name-foreign", "contract-mismatch"} <= set(asked.codes), why(asked)


def test_a_block_fp8_llama_without_its_declaration_is_refused(tmp_path: Path) -> None:
    folder = tiny_models.fp8_llama(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    inspection = inspect(folder)
    assert inspection.codes == ("declaration-missing", "layout-undeclared")
    assert inspection.resembles == (BLOCKWISE,)


@pytest.mark.parametrize(
    "write",
    [
        tiny_models.dense_llama,
        tiny_models.fp8_llama,
        tiny_models.fp8_qwen3_moe,
        lambda folder: tiny_models.compressed_llama(folder, "FP8_BLOCK"),
    ],
    ids=["dense", "llama", "moe", "compressed"],
)
def test_writing_is_deterministic(write: Callable[[Path], Path], tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    for path in first.glob("*.safetensors"):
        assert path.read_bytes() == (second / path.name).read_bytes()


# The producer itself: a fixture that is wrong proves nothing.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_producer_is_within_half_a_step_of_the_weights_before_quantization(dtype: torch.dtype, tmp_path: Path) -> None:
    """B1-29: a scale rounded after the division would be off by up to its own rounding, and every shape would still be right."""
    original = tensors_of(tiny_models.dense_llama(tmp_path / "dense"))
    quantized = tensors_of(tiny_models.fp8_llama(tmp_path / "fp8", dtype))
    for name in LLAMA:
        spread = tiny_models.expand(quantized[f"{name}_scale_inv"], original[name].shape)
        value, exact = quantized[name].double() * spread, original[name].double()
        # 3 bits of mantissa: half a step is 1/16 of a normal value and 2**-10 of a subnormal one; the clamp adds the scale's rounding.
        allowed = torch.maximum(exact.abs() / 16, spread * 2.0**-10) + exact.abs() * torch.finfo(dtype).eps
        assert bool(((value - exact).abs() <= allowed).all()), name


def test_the_producer_clamps_and_gives_no_nan() -> None:
    """BF16 may round a scale down, so that the largest value divided by it lies above 448, where a bare cast gives NaN."""
    rounded_down = 0
    for number in range(64):
        weight = torch.full((3, 130), 1.0 + number / 64)
        codes, scale = tiny_models.quantize(weight, torch.bfloat16)
        rounded_down += bool((weight.double() / tiny_models.expand(scale, weight.shape) > 448).any())
        assert not codes.float().isnan().any()
        assert codes.float().abs().max() <= 448
    assert rounded_down > 0


def test_the_producer_gives_a_block_of_zeros_the_scale_1() -> None:
    weight = torch.zeros(130, 130)
    weight[129, 129] = -3.0
    codes, scale = tiny_models.quantize(weight, torch.float32)
    assert scale.tolist() == [[1.0, 1.0], [1.0, pytest.approx(3 / 448, rel=1e-7)]]
    assert codes.float()[129, 129] == -448
    assert not codes.float()[:128].any()

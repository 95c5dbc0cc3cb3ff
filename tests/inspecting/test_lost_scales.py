"""FP8 values that nothing scales and nothing declares are storage only if a few of them look like weights as they are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect

torch = pytest.importorskip("torch")

from safetensors.torch import save, save_file  # noqa: E402  # after the check that its library is there

STORAGE = "cozy.fp8-storage@1"
Quantize = Callable[[torch.Tensor], torch.Tensor]


def raw(weight: torch.Tensor) -> torch.Tensor:
    return weight.to(torch.float8_e4m3fn)


def by(size: tuple[int, int]) -> Quantize:
    """Quantize with one scale for each block, and lose the scales: computed here anew, from amax / 448."""

    def quantize(weight: torch.Tensor) -> torch.Tensor:
        codes = torch.empty_like(weight)
        rows, columns = (each or whole for each, whole in zip(size, weight.shape, strict=True))
        for row in range(0, weight.shape[0], rows):
            for column in range(0, weight.shape[1], columns):
                block = weight[row : row + rows, column : column + columns]
                codes[row : row + rows, column : column + columns] = block * (448 / block.abs().max().clamp(min=1e-12))
        return codes.to(torch.float8_e4m3fn)

    return quantize


def power_of_two(weight: torch.Tensor) -> torch.Tensor:
    """Quantize with scales that are powers of two (UE8M0)."""
    scale = torch.exp2(torch.ceil(torch.log2(weight.abs().amax(1, keepdim=True) / 448)))
    return (weight / scale).to(torch.float8_e4m3fn)


LOST = {
    "one for all": by((0, 0)),
    "one for each row": by((1, 0)),
    "blocks of 128 x 128": by((128, 128)),
    "blocks of 1 x 128": by((1, 128)),
    "powers of two": power_of_two,
}


def model(quantize: Quantize, spread: float = 0.02, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights as they are in models: normal ones, some with outliers, and norms that stay as they are."""
    chance = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(5):
        for name, shape in (("q_proj", (256, 384)), ("down_proj", (130, 260))):
            weight = torch.randn(shape, generator=chance) * spread
            if layer % 2:
                weight[3, 5] = 40 * spread
            tensors[f"layers.{layer}.{name}.weight"] = quantize(weight)
        tensors[f"layers.{layer}.norm.weight"] = torch.ones(256, dtype=torch.bfloat16)
    return tensors


def judged(tensors: dict[str, torch.Tensor], folder: Path, contract: str | None = None) -> Inspection:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({}))
    return inspect(folder, contract=contract)


@pytest.mark.parametrize("spread", [0.001, 0.02, 0.3, 1.0])
def test_values_as_they_are_stay_accepted_and_the_report_says_which_were_read(spread: float, tmp_path: Path) -> None:
    inspection = judged(model(raw, spread), tmp_path)
    assert inspection.contract == STORAGE, inspection.violations
    assert len(inspection.values_read) == 10
    assert any("values: looked at 10" in line and inspection.values_read[0] in line for line in inspection.proved)


@pytest.mark.parametrize("quantize", LOST.values(), ids=LOST)
@pytest.mark.parametrize("asked", [None, STORAGE], ids=["found", "asked for by name"])
def test_codes_without_their_scales_are_refused(quantize: Quantize, asked: str | None, tmp_path: Path) -> None:
    inspection = judged(model(quantize), tmp_path, asked)
    assert inspection.contract is None
    assert inspection.codes == ("scale-lost",)
    assert inspection.values_read
    assert "without their scale" in inspection.violations[0].found


def test_what_cannot_be_said_asks_for_the_name(tmp_path: Path) -> None:
    tensors = model(raw, 8.0)
    undecided = judged(tensors, tmp_path)
    assert undecided.codes == ("scale-undecided",)
    assert STORAGE in undecided.violations[0].remedy
    assert judged(tensors, tmp_path, STORAGE).contract == STORAGE


def test_one_table_of_large_values_makes_no_model_doubtful(tmp_path: Path) -> None:
    table = {"shared.weight": (torch.randn(256, 64, generator=torch.Generator().manual_seed(1)) * 100).to(torch.float8_e4m3fn)}
    assert judged({**table, **model(raw)}, tmp_path).contract == STORAGE


def test_half_a_model_without_scales_is_no_storage(tmp_path: Path) -> None:
    mixed = {f"vae.{name}": tensor for name, tensor in model(raw).items()} | model(by((128, 128)))
    assert judged(mixed, tmp_path).codes == ("scale-lost",)


def test_zeros_say_nothing(tmp_path: Path) -> None:
    assert judged({"a.weight": torch.zeros(64, 64, dtype=torch.uint8).view(torch.float8_e4m3fn)}, tmp_path).contract == STORAGE


def test_nan_codes_are_no_large_values(tmp_path: Path) -> None:
    codes = torch.full((64, 64), 0x20, dtype=torch.uint8)
    codes[0, :32], codes[1, :32] = 0x7F, 0xFF
    assert judged({"a.weight": codes.view(torch.float8_e4m3fn)}, tmp_path).contract == STORAGE


@pytest.mark.parametrize("of", ["bytes", "memoryview", "file", "path"])
def test_wherever_it_is_read_from(of: str, tmp_path: Path) -> None:
    for quantize, codes in ((raw, ()), (by((1, 0)), ("scale-lost",))):
        data = save(model(quantize))
        (tmp_path / "m.safetensors").write_bytes(data)
        sources = {"bytes": data, "memoryview": memoryview(data), "file": io.BytesIO(data), "path": tmp_path / "m.safetensors"}
        assert inspect(sources[of]).codes == codes


def test_little_is_read_of_large_tensors(tmp_path: Path) -> None:
    """A few kilobytes of a handful, from the beginning, the middle and the end."""
    codes = torch.zeros(512, 2048, dtype=torch.uint8)
    codes[256, 0] = 0x20  # the middle piece alone holds a value
    inspection = judged({f"layers.{number}.weight": codes.clone().view(torch.float8_e4m3fn) for number in range(40)}, tmp_path)
    assert "median 0.125, largest 0.125" in " ".join(inspection.proved)
    assert inspection.contract == STORAGE
    assert len(inspection.values_read) == 12
    assert len({name.split(".")[1] for name in inspection.values_read}) == 12

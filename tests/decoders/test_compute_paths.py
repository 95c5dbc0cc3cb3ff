"""Which kernels a resident unit may meet on a CUDA device, and who decides that there is none: judged before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import tensorhub_decoders.resident.compute_paths as module
import torch
from tensorhub_cuda.errors import DecidedBy, KernelBuildError, KernelUnavailable
from tensorhub_decoders.resident.compute_paths import compute_paths

from tensorhub_contracts import Inspection, Refusal, inspect
from tests.support.checkpoint_files import write_checkpoint

CUDA = torch.device("cuda", 0)
DECLARATION = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
SMALL = ("cuda.nvrtc.block_fp8_w8a16_small_m8", "cuda.nvrtc.block_fp8_w8a16_small_m16")


def checkpoint(folder: Path, units: Mapping[str, tuple[int, int]]) -> Inspection:
    tensors: dict[str, Any] = {"norm.weight": ("BF16", (7,))}
    for name, (rows, columns) in units.items():
        tensors[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        tensors[f"{name}.weight_scale_inv"] = ("F32", (-(-rows // 128), -(-columns // 128)))
    write_checkpoint(folder, tensors, config=DECLARATION)
    return inspect(folder).require()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[torch.device, str]]:
    """What would have been compiled and loaded; there is no device here."""
    asked: list[tuple[torch.device, str]] = []
    monkeypatch.setattr(module, "_prepare", lambda device, compute: asked.append((device, compute)))
    return asked


def test_each_unit_is_listed_under_every_kernel_that_takes_it(tmp_path: Path, prepared: list[tuple[torch.device, str]]) -> None:
    tree = checkpoint(tmp_path / "tree", {"even": (130, 256), "odd": (64, 250)})
    assert compute_paths(tree, 16, "BF16", CUDA) == {"even.weight": (*SMALL, "cuda.nvrtc.block_fp8_w8a16_tile"), "odd.weight": SMALL}
    assert set(compute_paths(tree, 32, "F32", CUDA).values()) == {("cuda.nvrtc.block_fp8_w8a32_tile",)}
    assert prepared == [(CUDA, "w8a16"), (CUDA, "w8a32")]
    assert set(compute_paths(tree, 16, "BF16", torch.device("cpu")).values()) == {("cpu.strip_upcast_w8a16",)}
    assert len(prepared) == 2, "the CPU needs no kernel"


def test_every_unit_that_no_kernel_takes_is_named_before_anything_is_compiled(
    tmp_path: Path, prepared: list[tuple[torch.device, str]]
) -> None:
    tree = checkpoint(tmp_path / "tree", {"even": (130, 256), "odd": (64, 250), "odder": (64, 129)})
    with pytest.raises(Refusal) as caught:
        compute_paths(tree, 8, "BF16", CUDA)
    found = {(each.code, each.object) for each in caught.value.violations}
    assert found == {("kernel-unavailable", "odd.weight"), ("kernel-unavailable", "odder.weight")}
    assert all("decided by: alignment" in each.found and "fp8-w8a16" in each.remedy for each in caught.value.violations)
    with pytest.raises(Refusal) as caught:
        compute_paths(tree, 16, "F16", CUDA)
    assert [(each.code, "BF16" in each.remedy) for each in caught.value.violations] == [("kernel-unavailable", True)]
    assert prepared == []
    even = checkpoint(tmp_path / "even", {"even": (130, 256)})
    assert compute_paths(even, 8, "BF16", CUDA) == {"even.weight": ("cuda.nvrtc.block_fp8_w8a8_tile",)}


@pytest.mark.parametrize("who", get_args(DecidedBy))
def test_who_decided_is_in_the_refusal(who: DecidedBy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(device: torch.device, compute: str) -> None:
        raise KernelUnavailable(who, "a kernel", "something", "something else", "Do this.")

    monkeypatch.setattr(module, "_prepare", unavailable)
    with pytest.raises(Refusal) as caught:
        compute_paths(checkpoint(tmp_path / "tree", {"even": (130, 256)}), 16, "BF16", CUDA)
    (violation,) = caught.value.violations
    assert (violation.code, violation.object, violation.expected, violation.remedy) == (
        "kernel-unavailable",
        "a kernel",
        "something",
        "Do this.",
    )
    assert violation.found == f"something else (decided by: {who})"


def test_nothing_but_not_supported_here_becomes_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = checkpoint(tmp_path / "tree", {"even": (130, 256)})

    def broken(device: torch.device, compute: str) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "_prepare", broken)
    with pytest.raises(OSError, match="disk full"):
        compute_paths(tree, 16, "BF16", CUDA)

    def refused(device: torch.device, compute: str) -> None:
        raise KernelBuildError("sm_90a", "a source", "an error", "Report it.", options=("--x",), log="line 3")

    monkeypatch.setattr(module, "_prepare", refused)
    with pytest.raises(Refusal) as caught:
        compute_paths(tree, 16, "BF16", CUDA)
    assert "decided by: nvrtc" in caught.value.violations[0].found


@pytest.mark.parametrize(("bits", "device"), [(8, "cpu"), (16, "meta"), (32, "mps")])
def test_a_device_without_kernels_is_refused(bits: int, device: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        compute_paths(checkpoint(tmp_path / "tree", {"even": (130, 256)}), bits, "BF16", torch.device(device))
    assert caught.value.codes == ("load-unsupported",)

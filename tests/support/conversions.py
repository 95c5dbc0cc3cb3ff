"""Makes small checkpoints of real values, runs the commands in this process, and reads what they wrote with the safetensors library."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorhub_decoders.converting.shard_writing as shard_writing
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from tensorhub_contracts.commands import tensorhub

BLOCKWISE, ROWWISE, STORAGE = "hf.fp8-blockwise@1", "cozy.fp8-rowwise@1", "cozy.fp8-storage@1"
CONTRACTS = (BLOCKWISE, ROWWISE, STORAGE)


@dataclass(frozen=True)
class Run:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON that went to standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def run(*arguments: str | Path) -> Run:
    """Run `tensorhub` in this process: PyTorch takes seconds to import, which a process for each test would pay."""
    result = CliRunner().invoke(tensorhub, list(map(str, arguments)), prog_name="tensorhub", standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def done(*arguments: str | Path) -> dict[str, Any]:
    """Run a command that must succeed; return its report."""
    found = run(*arguments, "--output", "json")
    assert found.code == 0, found.err
    return found.report


def refused(*arguments: str | Path) -> list[dict[str, str]]:
    """Run a command that must refuse; return the violations of the problem that it answers with."""
    found = run(*arguments, "--output", "json")
    assert found.code == 1, (found.code, found.out, found.err)
    assert "Traceback" not in found.err
    violations: list[dict[str, str]] = found.report["violations"]
    return violations


def save(
    folder: Path,
    *shards: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
    base: str = "model",
) -> Path:
    """Write a checkpoint with the safetensors library, with an index if it has several shards."""
    folder.mkdir(parents=True)
    entries = dict(metadata or {"format": "pt"})
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"{base}.safetensors" if len(shards) == 1 else f"{base}-{number:05}-of-{len(shards):05}.safetensors"
        save_file({key: tensor.clone() for key, tensor in shard.items()}, folder / name, metadata=entries)
        weight_map.update(dict.fromkeys(shard, name))
    if len(shards) > 1:
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / f"{base}.safetensors.index.json").write_text(json.dumps(index))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def load(folder: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of a folder, as the safetensors library reads it."""
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16, spread: float = 0.05) -> torch.Tensor:
    """Return normal noise, the same for the same shape and seed."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * spread).to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor, to be compared."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a folder, by name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def small_model(dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Return the tensors of a model in which everything is there once: an embedding, two layers, odd shapes, norms, a counter."""
    tensors = {"embed.weight": noise(40, 144, dtype=dtype), "norm.weight": torch.ones(144), "steps": torch.arange(3)}
    for layer in range(2):
        tensors |= {
            f"layers.{layer}.up.weight": noise(130, 144, seed=layer, dtype=dtype),
            f"layers.{layer}.down.weight": noise(144, 272, seed=layer + 10, dtype=dtype),
            f"layers.{layer}.one.weight": noise(1, 16, seed=layer, dtype=dtype),
            f"layers.{layer}.up.bias": noise(130, seed=layer, dtype=dtype),
            f"layers.{layer}.experts.gate_up": noise(3, 136, 144, seed=layer, dtype=dtype),
        }
    return tensors


def interrupted_after(shards: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let so many shards be finished, and the next one meet an error when half of it is written."""
    right: Callable[..., int] = os.pwrite
    begun: list[int] = []

    def pwrite(descriptor: int, data: Any, place: int) -> int:
        if place == 0:
            begun.append(descriptor)
        if len(begun) > shards and place > 100_000:
            raise error
        return right(descriptor, data[: len(data) // 2 + 1], place)  # and let every write be a short one

    monkeypatch.setattr(shard_writing.os, "pwrite", pwrite)

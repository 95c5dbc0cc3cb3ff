"""Loading opens every shard once and reads its header once, whatever becomes of the weights: one verified reader."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorhub_decoders.reading as reading

from tensorhub_contracts import load
from tensorhub_contracts.checkpoints.files import open_regular
from tests.support.conversions import BLOCKWISE, ROWWISE, done, small_model
from tests.support.conversions import save as save_checkpoint


class Watched:
    """The system calls of the reader: the paths that it opens, and how often it reads at the beginning of a file."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.verified: Counter[str] = Counter()
        self._paths: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open_regular(self, path: Any, *, name: str) -> tuple[int, int]:
        descriptor, size = open_regular(path, name=name)
        self.opened[Path(path).name] += 1
        self._paths[descriptor] = Path(path).name
        return descriptor, size

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        if offset == 8:
            self.verified[self._paths[descriptor]] += 1
        return os.pread(descriptor, size, offset)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of three shards in two contracts, scales and weights in other shards than one another."""
    folder = tmp_path_factory.mktemp("shards")
    tensors = list(small_model().items())
    save_checkpoint(folder / "plain", *(dict(tensors[place::3]) for place in range(3)), config={})
    for contract in (BLOCKWISE, ROWWISE):
        done("produce", folder / "plain", folder / contract, "--to", contract)
    return folder


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("contract", [BLOCKWISE, ROWWISE])
def test_each_shard_is_opened_and_verified_once(contract: str, resident: bool, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(reading, "os", watched)
    monkeypatch.setattr(reading, "open_regular", watched.open_regular)
    load(shards / contract, dtype="BF16", resident=resident)
    names = {path.name for path in (shards / contract).glob("*.safetensors")}
    assert len(names) == 3
    assert watched.opened == watched.verified == dict.fromkeys(names, 1)

"""`plain.mixed@1` is read as the other unquantized contracts are: matrices rounded to what is asked for, vectors as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tensorhub_contracts import inspect, load

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}


def tree(folder: Path) -> dict[str, torch.Tensor]:
    """Write matrices of three dtypes and vectors of three; no value is one that the narrower dtypes hold."""
    chance = torch.Generator().manual_seed(1)
    numbers = torch.randn(7, 33, generator=chance)
    tensors = {
        **{f"m.{dtype}.weight": numbers.clone().to(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)},
        **{f"v.{dtype}.weight": numbers[0].clone().to(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)},
        "stack": numbers.clone().reshape(7, 3, 11),
        "position_ids": torch.arange(5),
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_are_rounded_once_and_the_rest_is_as_stored(dtype: str, tmp_path: Path) -> None:
    stored = tree(tmp_path / "tree")
    loaded = load(tmp_path / "tree", dtype=dtype, resident=False)
    assert loaded.report.contract == "plain.mixed@1"
    assert set(loaded.weights) == set(stored)
    for name, tensor in stored.items():
        found = loaded.weights[name]
        if tensor.dim() > 1:
            assert found.dtype is DTYPES[dtype]
            assert torch.equal(found, _rounded(tensor, dtype))
        else:
            assert found.dtype is tensor.dtype
            assert torch.equal(found, tensor)
    cast = {name for name, tensor in stored.items() if tensor.dim() > 1 and tensor.dtype is not DTYPES[dtype]}
    assert {name for names in loaded.report.compute_paths.values() for name in names} == cast


def _rounded(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """Round to nearest even on the bits of F32 (BF16), and with NumPy (F16)."""
    wide = tensor.float().numpy()
    if dtype == "F16":
        return torch.from_numpy(wide.astype(np.float16))
    bits = wide.view(np.uint32).astype(np.uint64)
    return torch.from_numpy(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.int16)).view(torch.bfloat16)


def test_what_was_proved_names_the_dtypes(tmp_path: Path) -> None:
    tree(tmp_path / "tree")
    proved = inspect(tmp_path / "tree").proved
    assert "dense: every matrix is BF16 (1) or F16 (1) or F32 (2), and nothing is quantized or scaled" in proved

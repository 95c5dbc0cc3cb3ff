"""A cache's folder for each test, and a record of what was compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc.compile import Cubin


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder, which does not exist yet; nothing of the environment that the tests run in is left."""
    for name in ("TENSOR_CONTRACTS_DISABLE_JIT", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The architectures that were compiled for, in order."""
    calls: list[int] = []
    real = kernel_cache.compile_cubin

    def counted(source: str, sm: int) -> Cubin:
        calls.append(sm)
        return real(source, sm)

    monkeypatch.setattr(kernel_cache, "compile_cubin", counted)
    return calls

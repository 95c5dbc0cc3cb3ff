"""The variables of the cache by the names that they had: not read, and said once."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc import variables
from tensorhub_cuda.nvrtc.cache import jit_disabled
from tensorhub_cuda.nvrtc.cache_folder import cache_folder


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    variables._warn_of_old_name.cache_clear()


def test_old_names_are_not_read_and_each_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(tmp_path / "old"))
    monkeypatch.setenv("TENSORHUB_DISABLE_JIT", "1")
    monkeypatch.delenv("TENSOR_CONTRACTS_DISABLE_JIT", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [jit_disabled(), jit_disabled()] == [False, False]
        assert cache_folder().path == cache_folder().path == tmp_path
    assert sorted(str(each.message) for each in caught) == [
        "TENSORHUB_DISABLE_JIT is set, and not read: the variable is TENSOR_CONTRACTS_DISABLE_JIT",
        "TENSORHUB_KERNEL_CACHE is set, and not read: the variable is TENSOR_CONTRACTS_KERNEL_CACHE",
    ]


def test_new_names_are_read_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    monkeypatch.delenv("TENSORHUB_DISABLE_JIT", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert jit_disabled()
    assert caught == []

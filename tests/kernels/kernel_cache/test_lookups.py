"""The compile cache: what is found again, by a key that holds everything that makes a cubin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc.cache import cubin_file_name, digest_of, find_cubin, recipe_digest
from tensorhub_cuda.nvrtc.compile import options_for

from tests.kernels.support.small_sources import OTHER, PLAIN


def test_what_was_compiled_is_found(folder: Path, compiled: list[int]) -> None:
    first, second = find_cubin(PLAIN, 90), find_cubin(PLAIN, 90)
    assert compiled == [90]
    assert (first.origin, second.origin) == ("compiled", "cache")
    assert first.code == second.code
    assert first.digest == second.digest == digest_of(first.code)
    assert [first.path] == [second.path] == [str(file) for file in folder.iterdir()], "nothing temporary is left either"
    assert (second.architecture, second.nvrtc_version, second.not_kept) == ("sm_90a", first.nvrtc_version, "")


def test_a_hit_takes_no_time(folder: Path, compiled: list[int]) -> None:
    find_cubin(PLAIN, 90)
    started = time.perf_counter()
    for _ in range(20):
        find_cubin(PLAIN, 90)
    per_hit = (time.perf_counter() - started) / 20
    print(f"{per_hit * 1e3:.2f} ms a hit")
    assert compiled == [90]
    assert per_hit < 0.02  # 0.1 to 0.3 ms where nothing else runs


def test_the_key_holds_each_ingredient() -> None:
    base = ("source", "sm_90a", ("--fmad=false", "-v"), 1)
    names = {
        cubin_file_name(recipe_digest(*base), "13.5"),
        cubin_file_name(recipe_digest(*base), "13.4"),
        cubin_file_name(recipe_digest("sourcf", *base[1:]), "13.5"),
        cubin_file_name(recipe_digest("source", "sm_90", *base[2:]), "13.5"),
        cubin_file_name(recipe_digest("source", "sm_90a", ("--fmad=true", "-v"), 1), "13.5"),
        cubin_file_name(recipe_digest("source", "sm_90a", ("--fmad=false-v",), 1), "13.5"),
        cubin_file_name(recipe_digest("source", "sm_90a", ("--fmad=false", "-v"), 2), "13.5"),
        cubin_file_name(recipe_digest("sourcesm_", "90a", ("--fmad=false", "-v"), 1), "13.5"),
    }
    assert len(names) == 8
    assert recipe_digest(*base) == recipe_digest(*base)


def test_the_key_is_what_it_was() -> None:
    """Images keep files by this name: another one would have them compile again. A source may hold any character."""
    recipe = recipe_digest('// 16 \u00d7 8 \u00b5s "quoted"\n\tx \x01 \x7f', "sm_90a", ("--fmad=false", "-v"), 1)
    assert recipe == "5dd44c3cf6546b6b130905f1cbb63245d2f1ffc036277559ad997ca39d490b04"


def test_each_ingredient_leads_to_another_file(folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    find_cubin(PLAIN, 90)
    find_cubin(OTHER, 90)
    find_cubin(PLAIN, 89)
    assert (compiled, len(list(folder.iterdir()))) == ([90, 90, 89], 3)
    monkeypatch.setattr(kernel_cache, "nvrtc_version", lambda: "99.1")
    find_cubin(PLAIN, 90)  # kept by its true version, and looked for by the other
    assert compiled == [90, 90, 89, 90]
    monkeypatch.undo()
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(folder))
    monkeypatch.setattr(kernel_cache, "options_for", lambda sm: (*options_for(sm), "--more"))
    assert find_cubin(PLAIN, 90).origin == "compiled"

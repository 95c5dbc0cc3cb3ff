"""Cubins that were built ahead of time, for images that do not compile or have another NVRTC."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc.cache import build_cubin, cubin_file_name, find_cubin, recipe_digest
from tensorhub_cuda.nvrtc.compile import options_for
from tensorhub_cuda.nvrtc.cubin import CubinDescription, CubinFile, read_cubin_file, write_cubin_file

from tests.kernels.support.small_sources import OTHER, PLAIN


def test_what_was_built_ahead_of_time_is_found_without_compiling(
    folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cubin, file = build_cubin(PLAIN, 90, folder)
    compiled.clear()
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.code, found.path, compiled) == ("image", cubin.code, str(file), [])
    assert file.stat().st_mode & 0o444 == 0o444  # whoever runs the image may read it


def test_jit_that_is_disabled_says_what_builds(folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    find_cubin(OTHER, 90)
    find_cubin(PLAIN, 89)
    compiled.clear()
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    with pytest.raises(KernelUnavailable) as caught:
        find_cubin(PLAIN, 90)
    assert caught.value.decided_by == "disabled"
    assert f"tensorhub kernels build --arch sm_90a --output-folder {folder}" in caught.value.remedy
    assert compiled == []
    assert find_cubin(OTHER, 90).origin == "cache"
    for value in ("0", ""):
        monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", value)
        assert find_cubin(PLAIN, 90).path
    assert compiled == [90]


def test_a_spoilt_file_is_not_loaded_for_want_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = build_cubin(PLAIN, 90, folder)
    file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    with pytest.raises(KernelUnavailable, match="found none"):
        find_cubin(PLAIN, 90)


def test_an_image_without_nvrtc_finds_what_the_latest_nvrtc_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = build_cubin(PLAIN, 90, folder)
    content = read_cubin_file(file)
    assert content is not None
    recipe = content.description.recipe
    for version in ("12.8", "99.10", "99.9"):
        description = CubinDescription(recipe, "sm_90a", version, content.description.options, True)
        write_cubin_file(folder / cubin_file_name(recipe, version), CubinFile(version.encode(), description))

    def missing() -> str:
        raise KernelUnavailable("package", "cuda-bindings", "an installed package", "nothing", "Install it.")

    monkeypatch.setattr(kernel_cache, "nvrtc_version", missing)
    found = find_cubin(PLAIN, 90)
    assert (found.code, found.nvrtc_version, found.origin) == (b"99.10", "99.10", "image")
    (folder / cubin_file_name(recipe, "99.10")).write_bytes(b"spoilt")
    assert find_cubin(PLAIN, 90).nvrtc_version == "99.9"
    with pytest.raises(KernelUnavailable) as caught:
        find_cubin(OTHER, 90)
    assert caught.value.decided_by == "package"


def test_with_nvrtc_only_its_own_files_are_used(folder: Path, compiled: list[int]) -> None:
    """A later compiler may do better, and a report names the one that did it."""
    _, file = build_cubin(PLAIN, 90, folder)
    content = read_cubin_file(file)
    assert content is not None
    file.unlink()
    recipe = content.description.recipe
    older = CubinDescription(recipe, "sm_90a", "12.8", content.description.options, True)
    write_cubin_file(folder / cubin_file_name(recipe, "12.8"), CubinFile(b"older", older))
    compiled.clear()
    assert find_cubin(PLAIN, 90).code == content.code
    assert compiled == [90]


def test_a_device_that_is_newer_than_nvrtc_finds_what_a_newer_one_built(folder: Path) -> None:
    with pytest.raises(KernelUnavailable, match="sm_131a"):
        find_cubin(PLAIN, 131)
    recipe = recipe_digest(PLAIN, "sm_131a", options_for(131))
    newer = CubinDescription(recipe, "sm_131a", "99.0", options_for(131), True)
    write_cubin_file(folder / cubin_file_name(recipe, "99.0"), CubinFile(b"newer", newer))
    found = find_cubin(PLAIN, 131)
    assert (found.code, found.nvrtc_version, found.architecture) == (b"newer", "99.0", "sm_131a")

"""Finds the cubin of a source: in the cache's folder, or by compiling it and keeping it there.

The key of a file is a SHA-256 over the source, the architecture, all options and our ABI, and beside it, in clear, the version
of NVRTC: so an image without NVRTC, or with TENSOR_CONTRACTS_DISABLE_JIT=1, finds what was built for it by any version. The folder is
TENSOR_CONTRACTS_KERNEL_CACHE, or tensorhub/kernels of the user's cache folder; `tensorhub kernels build` fills such a folder ahead of
time, and it may be read-only. Several processes may use one at once: a file is renamed into its place when it is whole and
verified, and verified again whenever it is read. Where no file can be kept, a cubin is kept in memory, and says why.

cuda.core's FileStreamProgramCache, which has the atomic files and the size bound, lacks the rest: what it reads is not verified
("no payload validation"), its folder must be writable, its files do not say what made them, and its key needs NVRTC to be there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Final, Literal

import attrs

from tensorhub_cuda.catalog import ABI
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc.cache_folder import cache_folder, folder_fault, remove_least_recently_used
from tensorhub_cuda.nvrtc.compile import Cubin, architecture_name, compile_cubin, nvrtc_version, options_for
from tensorhub_cuda.nvrtc.cubin import CubinDescription, CubinFile, read_cubin_file, write_cubin_file
from tensorhub_cuda.nvrtc.variables import variable

DISABLE_JIT: Final = "TENSOR_CONTRACTS_DISABLE_JIT"

#: Where a cubin is from: compiled by this process, a file that an earlier one wrote, a file that was built ahead of time.
Origin = Literal["compiled", "cache", "image"]


@attrs.frozen
class FoundCubin:
    """A cubin and where it is from."""

    #: The ELF bytes.
    code: bytes
    #: What it was compiled for, as "sm_90a".
    architecture: str
    #: The NVRTC that made it, as "13.5".
    nvrtc_version: str
    #: "sha256:" and the digest of `code`.
    digest: str
    #: Whether it was compiled now or read from a file, and which kind of file.
    origin: Origin
    #: Its file; empty if there is none.
    path: str
    #: Why there is no file; empty if there is one.
    not_kept: str = ""


def recipe_digest(source: str, architecture: str, options: tuple[str, ...], abi: int = ABI) -> str:
    """Return the digest of all that a cubin is made from, but the compiler's version."""
    ingredients = json.dumps((source, architecture, options, abi), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(ingredients.encode()).hexdigest()


def cubin_file_name(recipe: str, version: str) -> str:
    """Return the name of the file of what one version of NVRTC makes of a recipe: the cache's whole key."""
    return f"{recipe}.nvrtc-{version}.cubin"


def jit_disabled() -> bool:
    """Whether the environment forbids to compile: TENSOR_CONTRACTS_DISABLE_JIT is set, and is not 0."""
    return variable(DISABLE_JIT) not in ("", "0")


def find_cubin(source: str, sm: int, folder: Path | None = None) -> FoundCubin:
    """Return the cubin of a source for a compute capability such as 90, compiled only if no file holds it.

    `folder` is the cache's if it is None. Raises KernelBuildError, and KernelUnavailable if compiling is forbidden
    (`disabled`) or impossible (`package`, `nvrtc`) and no file holds the cubin.
    """
    folder = folder or cache_folder().path
    recipe = recipe_digest(source, architecture_name(sm), options_for(sm))
    fault = folder_fault(folder) if folder else ""
    if fault and not jit_disabled():
        return _keep(compile_cubin(source, sm), recipe, None, not_kept=f"{folder}: {fault}")
    if jit_disabled():
        return _built_before(folder, recipe) or _refuse_disabled(architecture_name(sm), folder)
    try:
        version = nvrtc_version()
        found = _read(folder / cubin_file_name(recipe, version), recipe, version) if folder else None
        return found or _keep(compile_cubin(source, sm), recipe, folder)
    except KernelUnavailable:  # no NVRTC, or one that is older than the device
        found = _built_before(folder, recipe)
        if found is None:
            raise
        return found


def cubin_is_kept(source: str, sm: int) -> bool:
    """Whether the cache's folder holds the cubin of a source, by any version of NVRTC."""
    return _built_before(cache_folder().path, recipe_digest(source, architecture_name(sm), options_for(sm))) is not None


def build_cubin(source: str, sm: int, folder: Path) -> tuple[Cubin, Path]:
    """Compile a source and write its file ahead of time, for an image; return the cubin and its file.

    Raises KernelBuildError, KernelUnavailable, and OSError if the file cannot be written.
    """
    cubin = compile_cubin(source, sm)
    recipe = recipe_digest(source, cubin.architecture, cubin.options)
    return cubin, _write(cubin, recipe, folder, ahead_of_time=True)


def _refuse_disabled(architecture: str, folder: Path | None) -> FoundCubin:
    raise KernelUnavailable(
        "disabled",
        f"a kernel for {architecture}",
        f"a file in {folder or 'a cache folder'} that was built before, as {DISABLE_JIT} is set",
        "none",
        f"Run tensorhub kernels build --arch {architecture} --output-folder {folder or 'FOLDER'}, or unset {DISABLE_JIT}.",
    )


def _built_before(folder: Path | None, recipe: str) -> FoundCubin | None:
    """Return the cubin of a recipe by the latest NVRTC that has a file for it."""
    before, after = cubin_file_name(recipe, "*").split("*")
    if folder and folder_fault(folder):
        return None
    try:
        names = [name for name in os.listdir(folder) if name.startswith(before) and name.endswith(after)] if folder else []
    except OSError:  # no folder, or not ours to read: nothing was built
        return None
    versions = [name.removeprefix(before).removesuffix(after) for name in names]
    for version in sorted(versions, key=_version_order, reverse=True):
        found = _read(Path(folder or "") / cubin_file_name(recipe, version), recipe, version)
        if found is not None:
            return found
    return None


def _version_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _read(path: Path, recipe: str, version: str) -> FoundCubin | None:
    """Return the cubin in a file, or None if the file is not whole, not ours, or of something else."""
    content = read_cubin_file(path)
    if content is None or (content.description.recipe, content.description.nvrtc_version) != (recipe, version):
        return None
    with contextlib.suppress(OSError):  # a read-only folder: nothing is removed from it either
        os.utime(path)
    origin: Origin = "image" if content.description.ahead_of_time else "cache"
    return FoundCubin(content.code, content.description.architecture, version, digest_of(content.code), origin, str(path))


def digest_of(code: bytes) -> str:
    """Return how reports write the digest of a cubin."""
    return f"sha256:{hashlib.sha256(code).hexdigest()}"


def _keep(cubin: Cubin, recipe: str, folder: Path | None, *, not_kept: str = "") -> FoundCubin:
    """Write a cubin's file if that is possible, and return the cubin either way."""
    path = ""
    if folder is None:
        not_kept = not_kept or cache_folder().unusable
    else:
        try:
            path = str(_write(cubin, recipe, folder, ahead_of_time=False))
            remove_least_recently_used(folder, keep=path)
        except OSError as error:
            not_kept = f"{folder}: {error.strerror}"
    return FoundCubin(cubin.code, cubin.architecture, cubin.nvrtc_version, digest_of(cubin.code), "compiled", path, not_kept)


def _write(cubin: Cubin, recipe: str, folder: Path, *, ahead_of_time: bool) -> Path:
    """Write a cubin's file and return its path; raises OSError."""
    description = CubinDescription(recipe, cubin.architecture, cubin.nvrtc_version, cubin.options, ahead_of_time)
    path = folder / cubin_file_name(recipe, cubin.nvrtc_version)
    write_cubin_file(path, CubinFile(cubin.code, description))
    return path

"""The compile cache: its key, files that are never trusted, folders that cannot be written, processes at once, and its bound."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc import cache_folder as folders
from tensorhub_cuda.nvrtc.cache import build_cubin, cubin_file_name, digest_of, find_cubin, recipe_digest
from tensorhub_cuda.nvrtc.cache_folder import cache_state, remove_least_recently_used
from tensorhub_cuda.nvrtc.compile import Cubin, options_for
from tensorhub_cuda.nvrtc.cubin import CubinDescription, CubinFile, cubin_from_bytes, cubin_to_bytes, read_cubin_file, write_cubin_file

PLAIN = 'extern "C" __global__ void plain(float* x) { x[threadIdx.x] += 1.0f; }'
OTHER = PLAIN.replace("1.0f", "2.0f")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder, which does not exist yet; nothing of the environment that the tests run in is left."""
    for name in ("TENSORHUB_DISABLE_JIT", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(tmp_path / "kernels"))
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


def only_file(folder: Path) -> Path:
    """Return the only file of a folder: nothing temporary is left either."""
    (file,) = folder.iterdir()
    return file


# Found again, or not.


def test_what_was_compiled_is_found(folder: Path, compiled: list[int]) -> None:
    first, second = find_cubin(PLAIN, 90), find_cubin(PLAIN, 90)
    assert compiled == [90]
    assert (first.origin, second.origin) == ("compiled", "cache")
    assert first.code == second.code
    assert first.digest == second.digest == digest_of(first.code)
    assert Path(first.path) == Path(second.path) == only_file(folder)
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


def test_each_ingredient_leads_to_another_file(folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    find_cubin(PLAIN, 90)
    find_cubin(OTHER, 90)
    find_cubin(PLAIN, 89)
    assert (compiled, len(list(folder.iterdir()))) == ([90, 90, 89], 3)
    monkeypatch.setattr(kernel_cache, "nvrtc_version", lambda: "99.1")
    find_cubin(PLAIN, 90)  # kept by its true version, and looked for by the other
    assert compiled == [90, 90, 89, 90]
    monkeypatch.undo()
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(folder))
    monkeypatch.setattr(kernel_cache, "options_for", lambda sm: (*options_for(sm), "--more"))
    assert find_cubin(PLAIN, 90).origin == "compiled"


# Files that are not what they should be.


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flip(place: Callable[[bytes], int]) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        at = place(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return spoil


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in half": _cut,
    "without its last byte": lambda data: data[:-1],
    "without its digest": lambda data: data[:-65],
    "a bit of code": _flip(lambda data: 200),
    "the first bit": _flip(lambda data: 0),
    "a bit of the description": _flip(lambda data: data.rindex(b"ahead_of_time")),
    "a bit of the digest": _flip(lambda data: len(data) - 10),
    "something behind it": lambda data: data + b"\n",
    "zeros": lambda data: bytes(len(data)),
    "text": lambda _: b"not a cubin\n" * 40,
    "a bare cubin": lambda data: data[: data.rindex(b'\n{"')],
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_spoilt_file_is_built_again(spoil: Callable[[bytes], bytes], folder: Path, compiled: list[int]) -> None:
    good = find_cubin(PLAIN, 90)
    file = only_file(folder)
    data = file.read_bytes()
    file.write_bytes(spoil(data))
    assert spoil(data) != data
    again = find_cubin(PLAIN, 90)
    assert (compiled, again.origin, again.code) == ([90, 90], "compiled", good.code)
    assert find_cubin(PLAIN, 90).origin == "cache"
    assert only_file(folder).read_bytes() == data


def test_a_file_of_another_key_under_this_name_is_built_again(folder: Path, compiled: list[int]) -> None:
    """Whole and verified, and of another source, architecture or compiler."""
    good = find_cubin(PLAIN, 90)
    wrong = [Path(find_cubin(OTHER, 90).path), Path(find_cubin(PLAIN, 89).path)]
    for other in wrong:
        Path(good.path).write_bytes(other.read_bytes())
        found = find_cubin(PLAIN, 90)
        assert (found.origin, found.code) == ("compiled", good.code)
    content = read_cubin_file(Path(good.path))
    assert content is not None
    older = CubinDescription(content.description.recipe, "sm_90a", "12.8", content.description.options, False)
    Path(good.path).write_bytes(cubin_to_bytes(b"older", older))
    assert find_cubin(PLAIN, 90).code == good.code


def test_a_whole_file_reads_as_it_was_written() -> None:
    """Code may hold newlines and what looks like a description."""
    description = CubinDescription("recipe", "sm_90a", "13.5", ("-a", "-b"), True)
    for code in (b"\x7fELF", b"\n", b'\n{"recipe":"other"}\n', b"\n" * 70000, os.urandom(3000)):
        assert cubin_from_bytes(cubin_to_bytes(code, description)) == CubinFile(code, description)


def test_a_digest_does_not_make_another_json_a_description() -> None:
    import hashlib

    for line in (b"{}", b"[1]", b'{"recipe": 1}', b"nothing"):
        content = b"code\n" + line + b"\n"
        assert cubin_from_bytes(content + hashlib.sha256(content).hexdigest().encode() + b"\n") is None


def test_a_folder_or_a_fifo_in_the_place_of_the_file(folder: Path, compiled: list[int]) -> None:
    good = find_cubin(PLAIN, 90)
    Path(good.path).unlink()
    Path(good.path).mkdir()
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path, found.code) == ("compiled", "", good.code)
    assert found.not_kept
    assert [each.name for each in folder.iterdir()] == [Path(good.path).name]  # no temporary file is left


def test_what_is_written_is_read_back_before_it_is_renamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorhub_cuda.nvrtc import cubin as cubin_file

    monkeypatch.setattr(cubin_file, "cubin_to_bytes", lambda code, description: b"a disk that lies")
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert "reads back otherwise" in found.not_kept
    assert list(folder.iterdir()) == []


# Folders that keep nothing.


@contextmanager
def without_privileges() -> Iterator[None]:
    """Let go of root's right to write everywhere, for the while."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)  # the real one too, which os.access asks by
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A folder that the tests' user may read, and not write, once it is given up to that."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def test_a_read_only_folder_serves_what_it_holds(foreign: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[int]) -> None:
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(foreign))
    _, file = build_cubin(PLAIN, 90, foreign)
    before = {each.name: each.read_bytes() for each in foreign.iterdir()}
    foreign.chmod(0o555)
    with without_privileges():
        kept, lost = find_cubin(PLAIN, 90), find_cubin(OTHER, 90)
        state = cache_state()
    assert (kept.origin, kept.path) == ("image", str(file))
    assert (lost.origin, lost.path, lost.code[:4]) == ("compiled", "", b"\x7fELF")
    assert "ermission denied" in lost.not_kept
    assert str(foreign) in lost.not_kept
    assert (state.state, state.files) == ("read-only", 1)
    assert "compiled again in every process" in state.reason
    assert {each.name: each.read_bytes() for each in foreign.iterdir()} == before


def test_an_unreadable_folder_and_file(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(foreign))
    _, file = build_cubin(PLAIN, 90, foreign)
    file.chmod(0)
    with without_privileges():
        assert find_cubin(PLAIN, 90).origin == "compiled"
    foreign.chmod(0)
    with without_privileges():
        assert find_cubin(PLAIN, 90).origin == "compiled"
        assert cache_state().state == "unusable"


@pytest.mark.parametrize("place", ["file/kernels", "file"])
def test_a_folder_that_cannot_be(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(tmp_path / place))
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert str(tmp_path / place) in found.not_kept
    assert cache_state().state == "unusable"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORHUB_KERNEL_CACHE")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(folders.Path, "home", homeless)
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.path) == ("compiled", "")
    assert "TENSORHUB_KERNEL_CACHE" in found.not_kept
    assert cache_state().state == "unusable"


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("TENSORHUB_KERNEL_CACHE", str(tmp_path / "own"))
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / "own", "TENSORHUB_KERNEL_CACHE")
    monkeypatch.delenv("TENSORHUB_KERNEL_CACHE")
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / "caches" / "tensorhub" / "kernels", "XDG_CACHE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folders.cache_folder() == folders.CacheFolder(tmp_path / ".cache" / "tensorhub" / "kernels", "default")
    assert cache_state().state == "not made yet"


# Processes and threads at once.

RACE = """
import sys, time
from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.compile import supported_architectures
supported_architectures()
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range(3):
    found = find_cubin(sys.argv[1].replace("1.0f", f"{number}.0f"), 90)
    print(found.origin, found.digest, bool(found.path))
"""


def test_processes_that_compile_the_same_at_once(folder: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE, PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert all(len(lines) == 3 for lines in answers)
    for number in range(3):
        assert len({lines[number].split()[1] for lines in answers}) == 1  # one digest, whoever compiled
        assert all(lines[number].split()[2] == "True" for lines in answers)
    files = list(folder.iterdir())
    assert len(files) == 3
    assert all(read_cubin_file(file) is not None for file in files)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_loaded(folder: Path, compiled: list[int]) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tensorhub_cuda.nvrtc.cache import find_cubin\n"
        "Path.replace = lambda self, other: os._exit(9)\nfind_cubin(sys.argv[1], 90)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, PLAIN], timeout=120).returncode == 9
    (left,) = folder.iterdir()
    assert left.name.endswith(".partial")
    assert find_cubin(PLAIN, 90).origin == "compiled"
    assert find_cubin(PLAIN, 90).origin == "cache"
    assert left.exists()  # it might be another process at work
    os.utime(left, (time.time() - 7200,) * 2)
    find_cubin(OTHER, 90)
    assert not left.exists()


# The bound.


def store(folder: Path, name: str, age: int, *, size: int = 1000, ahead_of_time: bool = False) -> Path:
    """Write a file of about `size` bytes that was last used `age` seconds ago."""
    path = folder / f"{name}.cubin"
    write_cubin_file(path, CubinFile(b"x" * size, CubinDescription(name, "sm_90a", "13.5", (), ahead_of_time)))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    files = [store(folder, f"kernel{age}", age) for age in (10, 40, 20, 30)]
    size = files[0].stat().st_size
    (folder / "notes.txt").write_text("x" * 10_000)  # not ours: neither counted nor removed
    remove_least_recently_used(folder, keep="", bound=4 * size)
    assert len(list(folder.iterdir())) == 5
    remove_least_recently_used(folder, keep="", bound=2 * size)
    assert {each.name for each in folder.iterdir()} == {"kernel10.cubin", "kernel20.cubin", "notes.txt"}


def test_neither_the_file_in_use_nor_an_images_file_goes(folder: Path) -> None:
    used, built = store(folder, "used", 50), store(folder, "built", 60, ahead_of_time=True)
    store(folder, "old", 40)
    store(folder, "new", 10)
    remove_least_recently_used(folder, keep=str(used), bound=0)
    assert set(folder.iterdir()) == {used, built}


def test_a_hit_counts_as_use(folder: Path) -> None:
    first, second = Path(find_cubin(PLAIN, 90).path), Path(find_cubin(OTHER, 90).path)
    for file, age in ((first, 90), (second, 80)):
        os.utime(file, (time.time() - age,) * 2)
    find_cubin(PLAIN, 90)
    remove_least_recently_used(folder, keep="", bound=first.stat().st_size)
    assert list(folder.iterdir()) == [first]


def test_writing_keeps_the_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store(folder, "old", 100, size=50_000)
    real = kernel_cache.remove_least_recently_used
    monkeypatch.setattr(kernel_cache, "remove_least_recently_used", lambda folder, keep: real(folder, keep=keep, bound=20_000))
    found = find_cubin(PLAIN, 90)
    assert not old.exists()
    assert list(folder.iterdir()) == [Path(found.path)]
    assert folders.BOUND_BYTES == 256 << 20


# Ahead of time, and without compiling.


def test_what_was_built_ahead_of_time_is_found_without_compiling(
    folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cubin, file = build_cubin(PLAIN, 90, folder)
    compiled.clear()
    monkeypatch.setenv("TENSORHUB_DISABLE_JIT", "1")
    found = find_cubin(PLAIN, 90)
    assert (found.origin, found.code, found.path, compiled) == ("image", cubin.code, str(file), [])
    assert file.stat().st_mode & 0o444 == 0o444  # whoever runs the image may read it


def test_jit_that_is_disabled_says_what_builds(folder: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    find_cubin(OTHER, 90)
    find_cubin(PLAIN, 89)
    compiled.clear()
    monkeypatch.setenv("TENSORHUB_DISABLE_JIT", "1")
    with pytest.raises(KernelUnavailable) as caught:
        find_cubin(PLAIN, 90)
    assert caught.value.decided_by == "disabled"
    assert f"tensorhub kernels build --arch sm_90a --output-folder {folder}" in caught.value.remedy
    assert compiled == []
    assert find_cubin(OTHER, 90).origin == "cache"
    for value in ("0", ""):
        monkeypatch.setenv("TENSORHUB_DISABLE_JIT", value)
        assert find_cubin(PLAIN, 90).path
    assert compiled == [90]


def test_a_spoilt_file_is_not_loaded_for_want_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = build_cubin(PLAIN, 90, folder)
    file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setenv("TENSORHUB_DISABLE_JIT", "1")
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

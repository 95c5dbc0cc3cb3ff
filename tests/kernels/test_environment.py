"""What `tensorhub doctor` finds, and how it judges: facts as they are here, and facts as they might be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from tensorhub_cuda.catalog import KERNELS, kernel, read_source
from tensorhub_cuda.environment import look
from tensorhub_cuda.environment.facts import EnvironmentFacts, Nvrtc, Torch, find_problems
from tensorhub_cuda.environment.look import find_environment, kernel_availability
from tensorhub_cuda.errors import KernelBuildError
from tensorhub_cuda.nvrtc import compile as nvrtc_compile
from tensorhub_cuda.nvrtc.cache import build_cubin
from tensorhub_cuda.nvrtc.compile import Cubin

from tensorhub_contracts.documents import document_json
from tests.kernels.support.environment_facts import KNOWN, facts
from tests.kernels.support.python_process import python

# Judging.

CONSISTENT = {
    "all of 13": facts(),
    "minor versions differ": facts(driver="13.0", nvrtc="13.5", torch="13.2", packages=(("nvidia-cuda-nvrtc", "13.5.37"),)),
    "all of 12": facts(driver="12.8", nvrtc="12.8", bindings="12.9.1", torch="12.8", packages=(("nvidia-cuda-nvrtc-cu12", "12.8.93"),)),
    "a newer driver": facts(
        driver="13.1", nvrtc="12.9", bindings="12.9.1", torch="12.8", packages=(("nvidia-cuda-nvrtc-cu12", "12.9.86"),)
    ),
    "no driver": facts(driver=""),
    "torch without CUDA": facts(torch=""),
    "nothing at all": facts(driver="", nvrtc="", bindings="", torch="", packages=()),
    "torch alone": facts(driver="", nvrtc="", bindings="", packages=()),
    "no package, but a toolkit's NVRTC": facts(packages=()),
}


@pytest.mark.parametrize("found", CONSISTENT.values(), ids=CONSISTENT.keys())
def test_what_fits_together_is_no_problem(found: EnvironmentFacts) -> None:
    assert find_problems(found) == ()


MIXED = {
    "torch for 12, all else 13": (facts(torch="12.8"), ["torch 2.14.0 for CUDA 12.8"], "cu12"),
    "torch for 13, all else 12": (
        facts(nvrtc="12.8", bindings="12.9.1", packages=(("nvidia-cuda-nvrtc-cu12", "12.8.93"),)),
        ["nvidia-cuda-nvrtc-cu12 12.8.93", "cuda.bindings 12.9.1", "NVRTC 12.8"],
        "cu13",
    ),
    "two packages of NVRTC": (
        facts(packages=(("nvidia-cuda-nvrtc", "13.0.88"), ("nvidia-cuda-nvrtc-cu12", "12.8.93"))),
        ["nvidia-cuda-nvrtc-cu12 12.8.93"],
        "cu13",
    ),
    "bindings for 13 that find NVRTC 12": (facts(torch="", nvrtc="12.8", packages=()), ["cuda.bindings 13.0.1", "NVRTC 12.8"], "cu13"),
    "torch for 12 and bindings for 13": (
        facts(torch="12.8", nvrtc="", packages=(("nvidia-cuda-nvrtc-cu12", "12.8.93"),)),
        ["cuda.bindings 13.0.1"],
        "cu12",
    ),
}


@pytest.mark.parametrize(("found", "named", "extra"), MIXED.values(), ids=MIXED.keys())
def test_mixed_majors_are_one_problem_that_names_each_part(found: EnvironmentFacts, named: list[str], extra: str) -> None:
    problems = [each for each in find_problems(found) if "several CUDA majors" in each.found]
    assert len(problems) == 1
    for part in named:
        assert part in problems[0].found
    assert f"pip install 'tensorhub-contracts[{extra}]'" in problems[0].remedy


def test_the_remedy_removes_what_is_not_torchs() -> None:
    (problem,) = find_problems(facts(torch="12.8"))
    removed = problem.remedy.partition("remove ")[2]
    assert "nvidia-cuda-nvrtc 13.0.88" in removed
    assert "cuda.bindings 13.0.1" in removed
    assert "torch" not in removed.partition(", and run")[0]


def test_a_driver_that_is_older_than_nvrtc() -> None:
    (problem,) = find_problems(facts(driver="12.8"))
    assert "CUDA 12.8" in problem.found
    assert "NVRTC 13.0" in problem.found
    assert "cu12" in problem.remedy


def test_a_package_that_hides_nvidias() -> None:
    (problem,) = find_problems(facts(shadowed_by="/home/somebody/cuda/__init__.py"))
    assert "/home/somebody/cuda/__init__.py" in problem.found


def test_all_problems_are_listed() -> None:
    assert len(find_problems(facts(driver="12.8", torch="12.8", shadowed_by="/home/somebody/cuda/__init__.py"))) == 3


# Who decides whether a kernel runs on a device.

HERE = Nvrtc("13.0", "/site/libnvrtc.so", KNOWN, ())
MISSING = Nvrtc("", "", (), (), "package", "cuda-bindings: expected an installed package")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.delenv("TENSOR_CONTRACTS_DISABLE_JIT", raising=False)
    return tmp_path / "kernels"


def decided(name: str, sm: int, nvrtc: Nvrtc = HERE, missing: tuple[str, ...] = ()) -> str:
    there = kernel_availability(kernel(name), sm, nvrtc, missing)
    assert there.available == (there.decided_by is None) == (there.reason == "")
    return there.decided_by or "runs"


def test_the_minimum_compute_capability_decides_first(cache: Path) -> None:
    for each in KERNELS:
        assert decided(each.name, each.minimum_sm) == "runs"
        assert decided(each.name, each.minimum_sm - 1, MISSING, ("torch is not installed",)) == "floor"


def test_packages_nvrtc_and_the_environment_decide(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "block_fp8_w8a32_tile"
    assert decided(name, 90, missing=("cuda-core is not installed",)) == "package"
    assert decided(name, 90, MISSING) == "package"
    assert decided(name, 131) == "floor"
    assert decided(name, 103) == "nvrtc"  # claimed, and not among what this NVRTC is said to know
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    assert decided(name, 90) == "disabled"
    assert decided(name, 90, MISSING) == "disabled"


def test_a_file_makes_up_for_the_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "block_fp8_w8a32_tile"
    build_cubin(read_source(kernel(name)), 90, cache)
    assert decided(name, 90, MISSING) == "runs"
    assert decided(name, 89, MISSING) == "package"
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    assert decided(name, 90) == "runs"
    assert decided(name, 89) == "disabled"


# Looking.


def test_the_facts_of_this_environment(cache: Path) -> None:
    found = find_environment()
    assert found.nvrtc.version
    assert Path(found.nvrtc.library).name.startswith("libnvrtc")
    assert [each.name.startswith("nvidia-cuda-nvrtc") for each in found.nvrtc.packages] == [True]
    assert found.cache.folder == str(cache)
    assert found.cache.state == "not made yet"
    assert not cache.exists()  # looking makes nothing
    files = {each.name: each.file for each in found.modules}
    assert Path(files["tensorhub_cuda"]).name == "__init__.py"
    assert files["cuda.core"]
    assert bool(found.driver.cuda) != bool(found.driver.reason)
    assert json.loads(document_json(found)) == json.loads(json.dumps(attrs.asdict(found)))


def test_torch_is_what_it_says_itself_and_is_not_imported() -> None:
    said = python(
        "import sys, json\nfrom tensorhub_cuda.environment.look import find_environment\nfound = find_environment().torch\n"
        "asked = 'torch' in sys.modules\nimport torch\n"
        "print(json.dumps([found.version, found.cuda, asked, torch.__version__, torch.version.cuda or '']))"
    ).stdout
    version, cuda, asked, true_version, true_cuda = json.loads(said)
    assert (version, cuda, asked) == (true_version, true_cuda, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__version__ = '2.14.0'\ncuda: Optional[str] = '13.0'\n", Torch("2.14.0", "13.0")),
        ("__version__ = '2.8.0+cu128'\ncuda = '12.8'\nhip = None\n", Torch("2.8.0+cu128", "12.8")),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", Torch("2.13.0+cpu", "")),
        ("this is no Python", None),
        ("raise SystemExit(1)\n", Torch("", "")),
    ],
)
def test_torchs_version_file_is_read_and_not_run(text: str, said: Torch | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit(1)")
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert look._find_torch() == (said or Torch(look._distribution_version("torch"), ""))


def test_the_drivers_version_is_found_in_both_of_its_files() -> None:
    for line in (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 20 06:43:21 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@host)\nGCC version:  gcc version 11.4.0",
    ):
        found = look._DRIVER_VERSION.search(line)
        assert found is not None
        assert found[0] == "580.65.06"


LOOK = (
    "import attrs, json\nfrom tensorhub_cuda.environment.look import find_environment\n"
    "from tensorhub_cuda.environment.facts import find_problems\n"
    "found = find_environment()\nprint(json.dumps([attrs.asdict(found), [attrs.asdict(each) for each in find_problems(found)]]))\n"
)


def test_without_any_package_the_facts_say_so(cache: Path) -> None:
    out = python("import sys\nfor name in ('cuda', 'torch'): sys.modules[name] = None\n" + LOOK).stdout
    found, problems = json.loads(out)
    assert problems == []
    assert found["torch"] == {"version": "", "cuda": ""}
    assert (found["nvrtc"]["version"], found["nvrtc"]["decided_by"]) == ("", "package")
    assert "cuda-bindings" in found["nvrtc"]["reason"]
    assert "cuda-bindings is missing" in found["driver"]["reason"]
    assert [each["file"] for each in found["modules"] if each["name"] != "tensorhub_cuda"] == [""] * 4


def test_a_folder_that_hides_nvidias_package(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").write_text("")
    out = python(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + LOOK).stdout
    _, problems = json.loads(out)
    assert [str(tmp_path / "cuda" / "__init__.py") in each["found"] for each in problems] == [True]


def test_a_compiler_that_is_there_and_does_not_compile_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of built-ins is another file, and its absence shows at the first compilation alone."""

    def broken(source: str, sm: int) -> Cubin:
        raise KernelBuildError("sm_90a", "a source", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE", "", options=(), log="libnvrtc-builtins.so")

    assert find_environment().nvrtc.version
    monkeypatch.setattr(nvrtc_compile, "compile_cubin", broken)
    found = find_environment().nvrtc
    assert (found.version, found.decided_by) == ("", "nvrtc")
    assert "libnvrtc-builtins.so" in found.reason


def test_a_file_that_hides_nvidias_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "cuda.py").write_text("", encoding="utf-8")
    code = "import cuda, tensorhub_cuda.nvrtc.compile as c\ntry:\n c.nvrtc_version()\nexcept Exception as e:\n print(e.decided_by, e)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("package")
    assert str(tmp_path / "cuda.py") in run.stdout

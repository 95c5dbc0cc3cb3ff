"""NVRTC, driver-free: exact architectures, no arithmetic behind the source's back, and errors that say everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorhub_cuda.errors import KernelBuildError, KernelUnavailable
from tensorhub_cuda.nvrtc import compile as nvrtc_compile
from tensorhub_cuda.nvrtc.compile import architecture_name, compile_cubin, kernel_resources, options_for, supported_architectures

from tests.kernels.support.python_process import python
from tests.kernels.support.sass import count, instructions

PLAIN = 'extern "C" __global__ void plain(float* x, float a) { x[threadIdx.x] = x[threadIdx.x] * a + 1.0f; }'


# What comes out.


@pytest.mark.parametrize(
    ("sm", "name"),
    [(75, "sm_75"), (80, "sm_80"), (86, "sm_86"), (89, "sm_89"), (90, "sm_90a"), (100, "sm_100a"), (103, "sm_103a"), (120, "sm_120a")],
)
def test_the_exact_architecture(sm: int, name: str) -> None:
    assert architecture_name(sm) == name


@pytest.mark.parametrize("sm", [75, 80, 89, 90, 100, 120])
def test_a_cubin_for_each_architecture(sm: int) -> None:
    cubin = compile_cubin(PLAIN, sm)
    assert cubin.code.startswith(b"\x7fELF")
    assert cubin.architecture == architecture_name(sm)
    assert f"--gpu-architecture={cubin.architecture}" in cubin.options
    assert list(kernel_resources(cubin.log)) == ["plain"]
    assert f"for '{cubin.architecture}'" in cubin.log
    major, minor = map(int, cubin.nvrtc_version.split("."))
    assert (12, 8) <= (major, minor) < (14, 0)


def test_the_same_source_gives_the_same_bytes() -> None:
    assert compile_cubin(PLAIN, 90).code == compile_cubin(PLAIN, 90).code != compile_cubin(PLAIN, 89).code


def test_nothing_is_contracted_but_what_the_source_contracts(tmp_path: Path) -> None:
    """A CPU that runs the same source rounds the product too, so the GPU has to."""
    found = instructions(compile_cubin(PLAIN, 90).code, tmp_path)["plain"]
    assert (count(found, "FMUL"), count(found, "FADD"), count(found, "FFMA")) == (1, 1, 0)
    written = PLAIN.replace("x[threadIdx.x] * a + 1.0f", "fmaf(x[threadIdx.x], a, 1.0f)")
    found = instructions(compile_cubin(written, 90).code, tmp_path)["plain"]
    assert (count(found, "FMUL"), count(found, "FADD"), count(found, "FFMA")) == (0, 0, 1)


def test_division_is_ieee_and_subnormals_stay(tmp_path: Path) -> None:
    found = instructions(compile_cubin(PLAIN.replace("* a + 1.0f", "/ a"), 90).code, tmp_path)["plain"]
    assert count(found, "FCHK") == 1  # looks for operands that need the long way; an approximate division has no such thing
    approximate = instructions(compile_cubin(PLAIN.replace("x[threadIdx.x] * a + 1.0f", "__fdividef(a, x[1])"), 90).code, tmp_path)
    assert count(approximate["plain"], "FCHK") == 0
    assert not any(".FTZ" in name for name in instructions(compile_cubin(PLAIN, 90).code, tmp_path)["plain"])


def test_no_option_asks_for_fast_math() -> None:
    assert not [each for each in options_for(90) if "fast" in each or each.endswith(("ftz=true", "prec-div=false", "prec-sqrt=false"))]
    assert {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"} <= set(options_for(90))


# What is refused.


def test_a_source_that_does_not_compile_comes_with_options_and_log() -> None:
    with pytest.raises(KernelBuildError) as caught:
        compile_cubin(PLAIN.replace("float a", "flaot a"), 89)
    error = caught.value
    assert error.decided_by == "nvrtc"
    assert error.options == options_for(89)
    assert "flaot" in error.log
    for part in (*error.options, error.log, "sm_89", "NVRTC_ERROR_COMPILATION"):
        assert part in str(error)


def test_ptxas_too_says_why_in_the_log() -> None:
    """It compiles as C++, and asks for more shared memory than a block may have by declaration."""
    greedy = 'extern "C" __global__ void greedy(int* x) { __shared__ int s[30000]; s[x[0]] = x[1]; __syncthreads(); x[2] = s[x[3]]; }'
    with pytest.raises(KernelBuildError) as caught:
        compile_cubin(greedy, 80)
    assert "too much shared data" in caught.value.log
    assert caught.value.log in str(caught.value)


def test_a_source_that_includes_something_does_not_compile() -> None:
    with pytest.raises(KernelBuildError, match="cuda_fp8"):
        compile_cubin("#include <cuda_fp8.h>\n" + PLAIN, 90)


@pytest.mark.parametrize("sm", [50, 70, 91, 999])
def test_an_architecture_that_nvrtc_does_not_know(sm: int) -> None:
    with pytest.raises(KernelBuildError) as caught:
        compile_cubin(PLAIN, sm)
    assert caught.value.decided_by == "nvrtc"
    assert caught.value.options == options_for(sm)
    assert ", ".join(map(str, supported_architectures())) in str(caught.value)


def test_nvrtc_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc_compile.check_nvrtc_version((12, 8))
    nvrtc_compile.check_nvrtc_version((13, 0))
    for version in ((12, 7), (11, 8)):
        with pytest.raises(KernelUnavailable, match=r"12\.8 or later") as caught:
            nvrtc_compile.check_nvrtc_version(version)
        assert caught.value.decided_by == "nvrtc"
    monkeypatch.setattr(nvrtc_compile, "OLDEST_NVRTC", (99, 0))  # the check is made where it matters
    nvrtc_compile._version.cache_clear()
    with pytest.raises(KernelUnavailable, match=r"99\.0 or later"):
        compile_cubin(PLAIN, 90)
    monkeypatch.undo()
    assert compile_cubin(PLAIN, 90).code


TRY = """
from tensorhub_cuda.nvrtc.compile import compile_cubin
from tensorhub_cuda.errors import KernelUnavailable
try:
    print("compiled", len(compile_cubin('extern "C" __global__ void k(float* x) { x[0] = 1; }', 90).code))
except KernelUnavailable as unavailable:
    print(unavailable.decided_by, "|", unavailable.object, "|", unavailable.remedy)
"""


def test_without_the_package() -> None:
    out = python("import sys; sys.modules['cuda.bindings'] = None\n" + TRY).stdout
    assert out.startswith("package | cuda-bindings |")
    assert "pip install 'tensorhub-contracts[cu13]'" in out
    assert python(TRY).stdout.startswith("compiled ")  # which it does with the package


def test_without_the_library(tmp_path: Path) -> None:
    """The package is there, and NVRTC is not: packages that lie in a folder without NVIDIA's libraries beside them."""
    import attr
    import attrs
    import cuda.bindings

    (tmp_path / "cuda").mkdir()
    for name in ("bindings", "pathfinder"):
        (tmp_path / "cuda" / name).symlink_to(Path(cuda.bindings.__file__).parents[1] / name)
    for module in (attr, attrs):
        (tmp_path / module.__name__).symlink_to(Path(module.__file__).parent)
    (tmp_path / "tensorhub_cuda").symlink_to(Path(nvrtc_compile.__file__).parents[1])
    out = python(TRY, path=str(tmp_path)).stdout
    if out.startswith("compiled"):
        pytest.skip("this machine has another NVRTC, where the system's loader finds it")
    assert out.startswith("nvrtc | NVRTC |")
    assert "[cu13]" in out


MAPPED = """
import sys
def mapped():
    with open("/proc/self/maps") as maps:
        names = {line.split()[-1].rpartition("/")[2] for line in maps if "/" in line}
    return {name for name in names if name.startswith(("libcuda.", "libnvrtc", "libcudart", "libnvidia"))}
try:
    import torch  # which imports cuda.bindings, and loads its own libraries where it is built for CUDA
except ImportError:
    pass
def nvidia():
    return {name for name in sys.modules if name.startswith("cuda.")}
before, imported_before = mapped(), nvidia()
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's list of mapped files")
def test_importing_everything_makes_no_cuda_call() -> None:
    everything = MAPPED + (
        "import importlib, pkgutil, tensorhub_cuda\n"
        "names = [each.name for each in pkgutil.walk_packages(tensorhub_cuda.__path__, 'tensorhub_cuda.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "import tensorhub_decoders.commands.kernels, tensorhub_decoders.commands.doctor\n"
        "print(len(names), mapped() - before, nvidia() - imported_before)\n"
    )
    count_of_modules, libraries, imported = python(everything).stdout.split()
    assert int(count_of_modules) >= 15
    assert libraries == "set()"
    assert imported == "set()"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads Linux's list of mapped files")
def test_that_compiling_is_seen_by_the_same_look() -> None:
    assert "libnvrtc" in python(MAPPED + TRY + "print(mapped() - before)").stdout


def test_importing_needs_neither_torch_nor_nvidia() -> None:
    ours = (
        "nvrtc.cache_folder",
        "nvrtc.compile",
        "nvrtc.cubin",
        "nvrtc.cache",
        "environment.look",
        "environment.facts",
        "launch.loaded",
        "launch.driver",
    )
    imports = [f"import tensorhub_cuda.{each}" for each in ours]
    python("\n".join(["import sys", "for name in ('torch', 'cuda'): sys.modules[name] = None", *imports]))

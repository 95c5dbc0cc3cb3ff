"""`tensorhub kernels` and `tensorhub doctor`, as their users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result
from tensorhub_cuda.catalog import KERNELS, Kernel, kernel, read_source
from tensorhub_cuda.environment.facts import Driver, GpuDevice, KernelAvailability
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc import compile as nvrtc_compile
from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.compile import Cubin, compile_cubin
from tensorhub_cuda.nvrtc.cubin import read_cubin_file
from tensorhub_decoders.commands import doctor, kernels

from tensorhub_contracts.commands import tensorhub as group
from tests.kernels.support.environment_facts import facts
from tests.support.cli import tensorhub


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(group, list(map(str, arguments)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TENSOR_CONTRACTS_DISABLE_JIT", raising=False)
    return tmp_path / "cache"


# kernels list


def test_kernels_list_has_a_line_for_each() -> None:
    run = invoke("kernels", "list")
    assert run.exit_code == 0
    lines = run.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [each.name for each in KERNELS]
    for line, each in zip(lines, KERNELS, strict=True):
        for part in (each.compute, f"sm_{each.minimum_sm}", f"{each.threads} threads", f"{each.tile_m} x {each.tile_n}"):
            assert part in line
        assert ("aligned" in line) == each.needs_alignment


def test_kernels_list_as_json_is_the_catalogue() -> None:
    rows = json.loads(invoke("kernels", "list", "--output", "json").stdout)["kernels"]
    assert tuple(Kernel(**{**row, "sources": tuple(row["sources"])}) for row in rows) == KERNELS


# kernels build

#: Two kernels that compile at once, in place of those of the catalogue: one source with both, of different minimum compute capabilities.
SMALL = 'extern "C" __global__ void first(float* x) { x[0] = 1; }\nextern "C" __global__ void second(float* x) { x[0] = 2; }\n'


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kernel("first", "w8a32", ("small.cu",), 128, 1, 1, 0, 75, 32, False)
    monkeypatch.setattr(kernels, "KERNELS", (first, attrs.evolve(first, name="second", minimum_sm=89)))
    monkeypatch.setattr(kernels, "read_source", lambda kernel: SMALL)


def test_kernels_build_for_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real kernels, for one architecture, in the real executable; and then nothing need be compiled."""
    folder = tmp_path / "image"
    run = tensorhub("kernels", "build", "--arch", "sm_75", "--output-folder", folder)
    assert (run.code, run.err) == (0, "")
    assert "block_fp8_w8a32_tile" in run.out
    assert " registers" in run.out
    assert "not built: its minimum compute capability is sm_80" in run.out
    (file,) = folder.iterdir()
    assert f"1 cubin in {folder}" in run.out
    content = read_cubin_file(file)
    assert content is not None
    assert content.description.ahead_of_time
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(folder))
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    found = find_cubin(read_source(kernel("block_fp8_w8a32_tile")), 75)
    assert (found.origin, found.path, found.code) == ("image", str(file), content.code)


@pytest.mark.usefixtures("small")
def test_kernels_build_as_json(tmp_path: Path) -> None:
    run = invoke("kernels", "build", "--arch", "sm_89", "--arch", "90", "--arch", "sm_90a", "--output-folder", tmp_path, "--output", "json")
    assert run.exit_code == 0
    report = json.loads(run.stdout)
    assert report["not_built"] == []
    assert [(each["architecture"], each["kernel"]) for each in report["built"]] == [
        (architecture, name) for architecture in ("sm_89", "sm_90a") for name in ("first", "second")
    ]
    for each in report["built"]:
        content = read_cubin_file(Path(each["file"]))
        assert content is not None
        assert each["size"] == len(content.code)
        assert each["digest"] == find_cubin_digest(content.code)
        assert 0 < each["registers"] <= 32
        assert each["spill_bytes"] == 0
    assert len({each["file"] for each in report["built"]}) == 2


def find_cubin_digest(code: bytes) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(code).hexdigest()}"


@pytest.mark.usefixtures("small")
def test_kernels_build_into_the_cache_by_default(cache: Path) -> None:
    run = invoke("kernels", "build", "--arch", "sm_80")
    assert run.exit_code == 0
    assert len(list(cache.iterdir())) == 1
    assert "second" in run.stdout
    assert "not built: its minimum compute capability is sm_89" in run.stdout


@pytest.mark.usefixtures("small")
def test_an_architecture_that_nothing_is_for_is_refused(tmp_path: Path) -> None:
    run = invoke("kernels", "build", "--arch", "sm_90", "--arch", "sm_70", "--output-folder", tmp_path)
    assert run.exit_code == 1
    assert len(list(tmp_path.glob("*.cubin"))) == 1  # the other is there


@pytest.mark.parametrize("unknown", ["sm_131", "sm_110"])  # one that NVRTC does not know, and one that it does and nobody looked at
@pytest.mark.usefixtures("small")
def test_an_architecture_that_the_kernels_are_not_claimed_for_is_refused(unknown: str, tmp_path: Path) -> None:
    run = invoke("kernels", "build", "--arch", unknown, "--arch", "sm_90", "--output-folder", tmp_path, "--output", "json")
    assert run.exit_code == 1
    report = json.loads(run.stdout)
    assert [each["kernel"] for each in report["not_built"]] == ["first", "second"]
    assert all("checked for sm_75" in each["reason"] for each in report["not_built"])
    assert [each["architecture"] for each in report["built"]] == ["sm_90a", "sm_90a"]


@pytest.mark.usefixtures("small")
def test_a_refusal_of_nvrtc_is_shown_with_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc_compile, "supported_architectures", lambda: (80, 90))
    run = invoke("kernels", "build", "--arch", "sm_89", "--arch", "sm_90", "--output-folder", tmp_path, "--output", "json")
    assert run.exit_code == 1
    assert "--gpu-architecture=sm_89" in run.stderr
    report = json.loads(run.stdout)
    assert [(each["kernel"], each["refused"]) for each in report["not_built"]] == [("first", True), ("second", True)]
    assert [each["architecture"] for each in report["built"]] == ["sm_90a", "sm_90a"]


@pytest.mark.usefixtures("small")
def test_a_kernel_that_spills_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spilling(source: str, sm: int, folder: Path) -> tuple[Cubin, Path]:
        cubin = compile_cubin(source, sm)
        return attrs.evolve(cubin, log=cubin.log.replace("0 bytes spill loads", "8 bytes spill loads", 1)), folder / "file"

    monkeypatch.setattr(kernels, "build_cubin", spilling)
    run = invoke("kernels", "build", "--arch", "sm_90", "--output-folder", tmp_path)
    assert run.exit_code == 1
    assert run.stdout.count("8 bytes of spills") == 1


@pytest.mark.usefixtures("small")
def test_without_nvrtc_the_refusal_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(source: str, sm: int, folder: Path) -> tuple[Cubin, Path]:
        raise KernelUnavailable("package", "cuda-bindings", "an installed package", "nothing", "Run pip install it.")

    monkeypatch.setattr(kernels, "build_cubin", missing)
    run = invoke("kernels", "build", "--arch", "sm_90", "--output-folder", tmp_path)
    assert run.exit_code == 1
    assert "Run pip install it." in run.stderr
    assert "decided by: package" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--arch"),
        (("--arch", "sm90"), "sm90"),
        (("--arch", "hopper"), "hopper"),
        (("--arch", "9.0"), "9.0"),
        (("--arch", "sm_90", "--output", "xml"), "xml"),
    ],
)
def test_wrong_usage_of_kernels_build(arguments: tuple[str, ...], named: str) -> None:
    run = invoke("kernels", "build", *arguments)
    assert run.exit_code == 2
    assert named in run.stderr


@pytest.mark.usefixtures("small")
def test_a_folder_that_cannot_be_written_is_a_matter_of_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = invoke("kernels", "build", "--arch", "sm_90", "--output-folder", tmp_path / "file" / "kernels")
    assert run.exit_code == 2
    assert "cannot write" in run.stderr


# doctor


def test_the_doctor_on_this_machine(cache: Path) -> None:
    run = tensorhub("doctor", env={"TENSOR_CONTRACTS_KERNEL_CACHE": str(cache)})
    assert (run.code, run.err) == (0, "")
    for word in ("driver ", "NVRTC ", "torch ", "cache ", "JIT      on", "cuda.bindings", str(cache), "not made yet"):
        assert word in run.out
    assert run.out.rstrip().endswith("consistent")
    report = json.loads(tensorhub("doctor", "--output", "json", env={"TENSOR_CONTRACTS_KERNEL_CACHE": str(cache)}).out)
    assert report["consistent"] is True
    assert report["problems"] == []
    if not report["environment"]["driver"]["cuda"]:
        assert "CUDA lanes do not run here" in run.out


def test_the_doctor_says_that_compiling_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    assert "JIT      off: TENSOR_CONTRACTS_DISABLE_JIT is set" in invoke("doctor").stdout


def test_the_doctor_refuses_mixed_majors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_environment", lambda: facts(torch="12.8"))
    text, report = invoke("doctor"), invoke("doctor", "--output", "json")
    assert (text.exit_code, report.exit_code) == (1, 1)
    assert "refused  several CUDA majors" in text.stdout
    assert "pip install 'tensorhub-contracts[cu12]'" in text.stdout
    assert text.stdout.rstrip().endswith("not consistent")
    parsed = json.loads(report.stdout)
    assert parsed["consistent"] is False
    assert "torch 2.14.0 for CUDA 12.8" in parsed["problems"][0]["found"]


def test_the_doctor_lists_devices_and_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = KernelAvailability("block_fp8_w8a32_tile", True)
    does_not = KernelAvailability("block_fp8_w8a8_tile", False, "floor", "its minimum compute capability is sm_89")
    driver = Driver("580.65.06", "13.0", "", (GpuDevice(0, "A \x1b[31mcard\n", 80, (runs, does_not)),))
    monkeypatch.setattr(doctor, "find_environment", lambda: attrs.evolve(facts(), driver=driver))
    run = invoke("doctor")
    assert run.exit_code == 0
    lines = run.stdout.splitlines()
    assert lines[0] == "driver   580.65.06, for CUDA 13.0"
    assert lines[1] == r"device   0  A \x1b[31mcard\n  sm_80"  # a name drives no terminal
    assert lines[2].split() == ["block_fp8_w8a32_tile", "runs"]
    assert lines[3].endswith("not here, decided by floor: its minimum compute capability is sm_89")


def test_wrong_usage_of_the_doctor() -> None:
    assert invoke("doctor", "--output", "xml").exit_code == 2
    assert invoke("doctor", "now").exit_code == 2

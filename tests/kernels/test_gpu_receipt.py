"""The GPU receipt end to end without a GPU: on the mock driver, whose launches the emulator runs, and where there is nothing at all.

What a receipt must never do stands beside what it must: pass without a GPU, pass with a wrong kernel, a changed fixture, or a judge that
accepts what is known to be bad.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels import gpu_receipt
from tests.kernels.mock_driver import build as mock_driver
from tests.kernels.oracle.fixture_files import FOLDER, describe_files, read_manifest
from tests.kernels.receipt import checks, sections
from tests.kernels.support import receipt_on_emulator

ROOT = Path(__file__).parents[2]
_SCRIPT = ROOT / "tests/kernels/support/receipt_on_emulator.py"
_PATH = os.pathsep.join(str(ROOT / folder) for folder in (".", "decoders", "cuda"))

#: What no test can run: the checks that need torch's CUDA, a second device, a clock that means something, and compute-sanitizer.
_NEED_A_GPU = {
    *(f"operator: {name}" for name in ("stream", "no synchronization", "CUDA graph", "graph without prepare", "torch.compile", "opcheck")),
    "operator: torch.compile with inductor",
    *("operator: offsets beyond 2 GiB", "operator: second device", "timings", "compute-sanitizer"),
}


class Made:
    """A receipt as it was written, with what the process said and exited with."""

    def __init__(self, code: int, said: str, folder: Path) -> None:
        self.code = code
        self.said = said
        assert (folder / "receipt.json").exists(), self.said
        self.document: dict[str, Any] = json.loads((folder / "receipt.json").read_text(encoding="utf-8"))
        self.page = (folder / "receipt.md").read_text(encoding="utf-8")

    def names(self, state: str) -> set[str]:
        return {check["name"] for check in self.document["checks"] if check["state"] == state}

    def detail(self, name: str) -> str:
        return next(str(check["detail"]) for check in self.document["checks"] if check["name"] == name)


MakeReceipt = Callable[..., Made]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the mock driver; kernels are compiled once for all tests."""
    folder = tmp_path_factory.mktemp("driver")
    mock_driver.build(folder)
    return folder


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return receipt_on_emulator.build_with_probes(tmp_path_factory.mktemp("emulator"))


@pytest.fixture
def on_emulator(driver: Path, tmp_path: Path) -> MakeReceipt:
    """Makes a receipt on the mock driver with an emulator's library."""

    def make(library: Path, *arguments: str) -> Made:
        # A machine that has a GPU may have no msgspec: nothing of the receipt asks for it.
        program = (
            "import runpy, sys; sys.modules['msgspec'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        environment = {**mock_driver.environment(driver), "PYTHONPATH": _PATH}
        command = [sys.executable, "-c", program, str(_SCRIPT), str(library), "--output", str(tmp_path / "receipt"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        return Made(done.returncode, done.stdout + done.stderr, tmp_path / "receipt")

    return make


@pytest.fixture
def without_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> MakeReceipt:
    """Makes a receipt where torch sees no GPU, in this process."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def make(*arguments: str) -> Made:
        code = gpu_receipt.main(["--output", str(tmp_path / "receipt"), *arguments])
        return Made(code, capsys.readouterr().out, tmp_path / "receipt")

    return make


# ---- On the mock driver and the emulator. ---------------------------------------------------------------------------------


def test_everything_that_can_run_without_a_gpu_passes_and_nothing_else_is_said_to(on_emulator: MakeReceipt, emulator: Path) -> None:
    made = on_emulator(emulator)
    assert made.code == checks.NO_GPU, made.said
    assert made.names("failed") == set()
    assert made.names("not run") == _NEED_A_GPU
    assert made.document["verdict"] == "not run on a GPU"
    assert "# GPU receipt: not run on a GPU" in made.page
    passed = made.names("passed")
    for case in read_manifest()["cases"]:
        assert {f"judge: {case['name']}", f"operator: {case['name']}"} <= passed
        assert any(name.endswith(f" on {case['name']}") for name in passed)
    kernels = {name.split()[1] for name in passed if name.startswith("kernel: ")}
    assert kernels == set(made.document["kernels"]), "each kernel of the catalog was judged"
    assert "primitive: probe_mma_e4m3" in passed
    _says_where_it_was_made(made.document)


def _says_where_it_was_made(document: dict[str, Any]) -> None:
    assert document["device"] == {"sm": 90, "memory": "cpu"}
    assert document["environment"]["nvrtc"]["version"]
    assert document["environment"]["torch"]["version"]
    assert document["fixtures"]["sha256"] == {each["path"]: each["sha256"] for each in read_manifest()["files"]}
    for kernel in document["kernels"].values():
        assert kernel["digest"].startswith("sha256:")
        assert kernel["compute_path"].startswith("cuda.nvrtc.")
    paths = {check["figures"].get("compute_path") for check in document["checks"] if check["name"].startswith("operator: ")}
    assert len(paths - {None}) == 5, "every matrix kernel was chosen by a call"


def test_kernels_that_answer_wrongly_fail_by_name(on_emulator: MakeReceipt, tmp_path: Path) -> None:
    """Two mistakes: origins of members and slices are ignored, and w8a32 rounds products before it adds them."""
    ignores_origins = ("scaled_linear.cuh", "linear.scale_rows != nullptr ?", "false ?")
    product = "x_values[i], weight_values[j]"
    rounds_twice = ("block_fp8_w8a32.cu", f"__fmaf_rn({product}, ", f"__fadd_rn(__fmul_rn({product}), ")
    made = on_emulator(receipt_on_emulator.build_with_probes(tmp_path, ignores_origins, rounds_twice), "--only", "kernels")
    assert made.code == checks.FAILED, made.said
    failed = [name.split(" on ")[1].split("/") for name in made.names("failed")]
    assert {problem for problem, lane in failed if lane != "w8a32"} == {"members", "slice"}
    of_w8a32 = {case["name"].split("/")[0] for case in read_manifest()["cases"] if case["lane"] == "w8a32"}
    assert {problem for problem, lane in failed if lane == "w8a32"} == of_w8a32 - {"one-element"}
    assert "elements wrong, the first at" in made.detail("kernel: block_fp8_w8a32_tile on slice/w8a32")
    assert "# GPU receipt: failed" in made.page
    assert "kernel: block_fp8_w8a32_tile on slice/w8a32" in made.page


@pytest.mark.parametrize("missing", ["attrs", "numpy", "torch"])
def test_a_package_that_it_cannot_do_without_is_named(missing: str, tmp_path: Path) -> None:
    program = (
        f"import runpy, sys; sys.modules[{missing!r}] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", program, str(ROOT / "tests/kernels/gpu_receipt.py"), "--output", str(tmp_path / "receipt")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": _PATH}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (checks.INCOMPLETE, "")
    assert done.stdout == f"not run: {sys.executable} has no {missing}. Run {sys.executable} -m pip install {missing}\n"
    assert not (tmp_path / "receipt").exists()


# ---- Where there is nothing. ----------------------------------------------------------------------------------------------


def test_without_a_gpu_it_is_not_run(without_gpu: MakeReceipt) -> None:
    made = without_gpu()
    assert made.code == checks.NO_GPU, made.said
    assert made.names("not run") == set(sections.SECTIONS)
    assert "fixtures" in made.names("passed")
    assert made.detail("kernels").startswith("no GPU")
    assert "device" not in made.document
    assert "| device | none |" in made.page


def test_a_changed_fixture_fails_by_name_and_nothing_is_judged_by_it(without_gpu: MakeReceipt, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "fixtures")
    content = bytearray((tmp_path / "fixtures/tile.safetensors").read_bytes())
    content[len(content) // 2] ^= 0x10
    (tmp_path / "fixtures/tile.safetensors").write_bytes(content)
    made = without_gpu("--fixtures", str(tmp_path / "fixtures"))
    assert made.code == checks.FAILED, made.said
    assert made.names("failed") == {"fixtures"}
    assert made.detail("fixtures").startswith("tile.safetensors: SHA-256")
    assert made.names("passed") == set()


def test_a_known_bad_answer_that_is_right_fails(without_gpu: MakeReceipt, tmp_path: Path) -> None:
    """A right answer in a known-bad one's place, with a manifest that fits: the judge accepts it, so the judge is not to be trusted."""
    shutil.copytree(FOLDER, tmp_path / "fixtures")
    path = tmp_path / "fixtures/one-element.safetensors"
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    start = 8 + int.from_bytes(content[:8], "little")
    right, wrong = (header[f"w8a32.{name}"]["data_offsets"] for name in ("expected", "wrong.reciprocal-scale"))
    changed = bytearray(content)
    changed[start + wrong[0] : start + wrong[1]] = content[start + right[0] : start + right[1]]
    path.write_bytes(changed)
    manifest = read_manifest()
    manifest["files"] = describe_files(tmp_path / "fixtures")
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    made = without_gpu("--fixtures", str(tmp_path / "fixtures"), "--manifest", str(tmp_path / "manifest.json"))
    assert made.code == checks.FAILED, made.said
    assert made.names("failed") == {"judge: one-element/w8a32"}
    assert made.detail("judge: one-element/w8a32") == "known-bad answers are accepted: reciprocal-scale"


def test_make_runs_it_with_the_python_that_is_named(tmp_path: Path) -> None:
    command = ["make", "gpu-test", f"PYTHON={sys.executable}", f"GPU_TEST_ARGS=--output {tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "not run on a GPU: " in done.stdout, done.stdout + done.stderr
    assert f"Error {checks.NO_GPU}" in done.stderr
    assert (tmp_path / "receipt.json").exists()

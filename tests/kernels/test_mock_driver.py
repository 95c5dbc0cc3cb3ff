"""Cubin, cuda.core, driver, kernel: the launch path end to end on a stand-in for the driver, each scenario by its name.

The scenarios are in `mock_driver/`, and run in a process that was started with the stand-in in the real driver's place.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.mock_driver.build import build, environment

#: Scenarios by what they find: kept here, so that one that is lost or misspelt is missed.
SCENARIOS = [
    "kernels_by_size",
    "full_precision_takes_any_size",
    "activations_are_quantized_first",
    "odd_layouts",
    "alignment_chooses",
    "rows_keep_their_origin",
    "many_rows_in_several_launches",
    "nothing_to_do_launches_nothing",
    "fake_results_are_those_of_the_real",
    "streams_are_the_callers",
    "a_second_device_has_its_own_kernels",
    "the_tensors_device_and_current_stream_are_used",
    "a_thread_without_a_context_can_launch",
    "a_capture_needs_prepared_kernels",
    "errors_of_the_driver_are_typed",
    "errors_of_earlier_work_stay_what_they_are",
    "a_device_that_is_not_there",
    "more_shared_memory_than_was_allowed_is_refused",
    "wrong_launches_are_seen",
    "wrong_arguments_give_wrong_results",
    "every_kernel_end_to_end",
    "members_end_to_end",
    "a_launch_past_its_memory_is_caught",
    "cost_of_a_launch",
]


@pytest.fixture(scope="module")
def mock_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mock-driver")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def outcomes(mock_folder: Path) -> dict[str, str]:
    """Run all scenarios in one process and return what went wrong in each."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.kernels.mock_driver.scenarios"]
    result = subprocess.run(command, env=environment(mock_folder), capture_output=True, text=True, check=False)
    print(result.stderr)
    assert result.returncode == 0, result.stderr
    return {line["name"]: line["wrong"] for line in map(json.loads, result.stdout.splitlines())}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(outcomes: dict[str, str], name: str) -> None:
    assert name in outcomes
    assert not outcomes[name], outcomes[name]


def test_no_scenario_is_left_out(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == sorted(SCENARIOS)


def run_alone(folder: Path, code: str) -> str:
    """Run code on the mock driver in a process of its own, and return what it printed."""
    prelude = "from tests.kernels.mock_driver.driver import MockDriver\ndriver = MockDriver()\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code], env=environment(folder), capture_output=True, text=True, check=True
    ).stdout


def test_no_device(mock_folder: Path) -> None:
    code = """
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.loaded import prepare_kernels
driver.set_devices()
try:
    prepare_kernels(0, ["w8a16"])
except KernelUnavailable as error:
    print(error.decided_by, error.object, "NO_DEVICE" in error.found or error.found)
"""
    assert run_alone(mock_folder, code) == "driver CUDA device 0 True\n"


def test_a_driver_that_fails_to_start(mock_folder: Path) -> None:
    code = """
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.loaded import prepare_kernels
driver.inject("cuInit", 3, times=9)
try:
    prepare_kernels(0, ["w8a16"])
except KernelUnavailable as error:
    print(error.decided_by, error.object)
"""
    assert run_alone(mock_folder, code) == "driver CUDA device 0\n"


def test_importing_calls_no_driver(mock_folder: Path) -> None:
    """Every module that launches, on a driver that counts; torch imports CUDA's packages itself, which calls nothing either."""
    code = """
import tensorhub_cuda.launch.driver, tensorhub_cuda.launch.torch_op, tensorhub_cuda.launch.torch_op, tensorhub_cuda.launch.operand_rules
print(driver.calls("cuInit"))
tensorhub_cuda.launch.loaded.device_sm(0)
print(driver.calls("cuInit"))
"""
    assert run_alone(mock_folder, code) == "0\n1\n", "and the control, after the first use: a call is counted"


def test_a_process_without_the_stand_in_says_so() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from tests.kernels.mock_driver.driver import MockDriver; MockDriver()"],
        env={name: value for name, value in environment(Path("/nowhere")).items() if name != "LD_LIBRARY_PATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "libcuda.so.1" in result.stderr


def test_without_gcc_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="gcc"):
        build(tmp_path)

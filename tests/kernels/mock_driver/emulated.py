"""Scenarios: from the operator's operands through the cubin, cuda.core and the driver to the product's own kernels, emulated."""

from __future__ import annotations

import pytest
from tensorhub_cuda.catalog import kernel

from tests.kernels.emulator.emulator import EmulatorError, product_emulator
from tests.kernels.mock_driver.driver import Launch, MockDriver
from tests.kernels.mock_driver.launch_checks import problems
from tests.kernels.mock_driver.launch_memory import memory_of
from tests.kernels.mock_driver.operands import operands
from tests.kernels.mock_driver.scenario import assert_close, project, scenario


def emulate(launch: Launch) -> None:
    """Run a launch on the emulator, in the arrays that its arguments mean: no access past any of them."""
    assert not problems(launch), problems(launch)
    product_emulator().launch(kernel(launch.kernel), launch.grid[:2], list(memory_of(launch).values()))


@scenario
def every_kernel_end_to_end(driver: MockDriver) -> None:
    driver.execute = emulate
    for compute, sizes in {
        "w8a16": ((5, 150, 300), (13, 150, 272), (70, 150, 272), (30, 40, 129)),
        "w8a32": ((5, 70, 130), (40, 70, 272)),
        "w8a8": ((70, 150, 272),),
    }.items():
        for m, n, k in sizes:
            for grid in ("block", "row"):
                case = operands(m, n, k, compute, grid, biased=grid == "block", layout="padded")
                assert_close(project(driver, case), case)
                assert not driver.errors, driver.errors
    assert len({launch.kernel for launch in driver.launches}) == 6, "every kernel of the catalog"


@scenario
def members_end_to_end(driver: MockDriver) -> None:
    driver.execute = emulate
    for compute in ("w8a16", "w8a32", "w8a8"):
        case = operands(20, 150, 272, compute, "block", members=(20, 129, 1))
        assert_close(project(driver, case), case)


@scenario
def a_launch_past_its_memory_is_caught(driver: MockDriver) -> None:
    """The control: rows that claim to be further apart than they are, and one row more than there is."""
    launched: list[Launch] = []
    driver.execute = launched.append
    case = operands(5, 40, 32, "w8a16", "block")
    y = project(driver, case)
    memory = memory_of(launched[0])
    emulator, chosen = product_emulator(), kernel(launched[0].kernel)
    emulator.launch(chosen, launched[0].grid[:2], list(memory.values()))
    assert_close(y, case)
    with pytest.raises(EmulatorError):
        emulator.launch(chosen, launched[0].grid[:2], list({**memory, "weight_stride": 48}.values()))
    with pytest.raises(EmulatorError):
        emulator.launch(chosen, launched[0].grid[:2], list({**memory, "m": 6}.values()))

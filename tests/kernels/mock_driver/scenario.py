"""What a scenario on the mock driver is, and what scenarios share: a function of the driver that raises what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch import loaded as loaded_kernels
from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.torch_op import linear_on_stream

from tests.kernels.mock_driver.driver import MockDriver
from tests.kernels.mock_driver.operands import Operands, exact_y

Scenario = Callable[[MockDriver], None]
SCENARIOS: dict[str, Scenario] = {}

#: What y may differ from float64 by, of its largest: the rounding of F32 and of BF16, and for w8a8 that of activations too.
TOLERANCES = {"w8a32": 1e-6, "w8a16": 2**-8, "w8a8": 0.06}


def scenario(function: Scenario) -> Scenario:
    """Add a scenario under its name."""
    SCENARIOS[function.__name__] = function
    return function


def run(name: str, driver: MockDriver) -> None:
    """Run a scenario on a driver and modules that remember nothing of the last one."""
    driver.reset()
    loaded_kernels.LOADED_KERNELS.clear()
    SCENARIOS[name](driver)
    assert not driver.errors, driver.errors


def project(driver: MockDriver, case: Operands, *, device: int = 0, stream: int = 0) -> torch.Tensor:
    """Call the projection of a case as the operator does, but for torch's CUDA device and stream."""
    driver.make_current(device)
    require_operands(*case.call)
    return linear_on_stream(*case.call, device_index=device, stream=stream)


def difference(y: torch.Tensor, case: Operands) -> float:
    """Return how far y is from float64, of the largest value of y."""
    exact = exact_y(case)
    assert y.shape == exact.shape, (y.shape, exact.shape)
    return float((y.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30))


def assert_close(y: torch.Tensor, case: Operands) -> None:
    """Judge a result against float64."""
    found = difference(y, case)
    assert found <= TOLERANCES[case.compute], (found, case.compute, case.grid, case.x.shape, case.weight.shape)


def unavailable(decided_by: str, object_: str | None = None) -> pytest.RaisesExc[KernelUnavailable]:
    """Expect a KernelUnavailable of a decision, about an object."""
    return pytest.raises(KernelUnavailable, check=lambda error: error.decided_by == decided_by and object_ in (None, error.object))

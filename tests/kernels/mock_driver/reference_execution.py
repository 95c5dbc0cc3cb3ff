"""Does on host memory, in float64, what a launch asks a kernel to do: from its arguments alone, so that wrong ones show."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.mock_driver.driver import Launch
from tests.kernels.mock_driver.launch_checks import problems
from tests.kernels.mock_driver.launch_memory import memory_of, scale_indices


def execute(launch: Launch, *, judge: bool = True) -> None:
    """Write the result of a launch; raises AssertionError for a launch that is not as it must be, unless it is not to judge."""
    assert not judge or not problems(launch), problems(launch)
    if launch.kernel == "quantize_activations":
        _quantize(**memory_of(launch))
    else:
        _multiply(**memory_of(launch))


def _multiply(**of: Any) -> None:
    x = of["x"].astype(np.float64)
    if of["x_scale"] is not None:
        x = x * of["x_scale"][:, np.arange(of["k"]) // 128]
    y = x @ (of["weight"].astype(np.float64) * of["scale"][scale_indices(**of)]).T
    if of["bias"] is not None:
        y = y + of["bias"].astype(np.float64)
    of["y"][:] = y.astype(np.float32).astype(of["y"].dtype)


def _quantize(**of: Any) -> None:
    m, k = of["m"], of["k"]
    groups = -(-k // 128)
    padded = np.zeros((m, groups * 128), np.float32)
    padded[:, :k] = of["x"]
    grouped = padded.reshape(m, groups, 128)
    scale = np.maximum(np.abs(grouped).max(axis=2), np.float32(1e-12)) / np.float32(448)
    of["x_scale"][:] = scale
    quantized = (grouped / scale[:, :, None]).astype(ml_dtypes.float8_e4m3fn).reshape(m, -1)
    of["codes"][:] = quantized[:, :k]

"""The memory that a launch's pointers mean, as arrays: found from its arguments alone, by the calling convention."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tensorhub_cuda.catalog import kernel as kernel_of_catalog

from tests.kernels.mock_driver.driver import Launch
from tests.kernels.mock_driver.launch_checks import named_arguments

Memory = dict[str, NDArray[Any] | int | None]

_X = {"w8a16": ml_dtypes.bfloat16, "w8a32": np.float32, "w8a8": ml_dtypes.float8_e4m3fn}
_Y = {"w8a16": ml_dtypes.bfloat16, "w8a32": np.float32, "w8a8": ml_dtypes.bfloat16}


def memory_of(launch: Launch) -> Memory:
    """Return the arguments of a launch by name: arrays for pointers, None for null ones, and numbers."""
    arguments = named_arguments(launch)
    compute = kernel_of_catalog(launch.kernel).compute
    return {**arguments, **(_of_quantize(**arguments) if compute == "quantize" else _of_matrix(compute, **arguments))}


def scale_indices(**of: Any) -> NDArray[np.int64]:
    """Return the place in `scale` of the scale of each weight, `[n, k]`."""
    rows = np.arange(of["n"]) >> of["scale_row_shift"] if of["scale_rows"] is None else of["scale_rows"]
    columns = np.arange(of["k"]) // 128 * of["scale_column_step"]
    return np.asarray(rows[:, None].astype(np.int64) * of["scale_stride"] + columns[None, :])


def _of_matrix(compute: str, **of: int) -> Memory:
    m, n, k = of["m"], of["n"], of["k"]
    scale_rows = rows_at(of["scale_rows"], 1, n, n, np.int32)[0] if of["scale_rows"] else None
    scales = int(scale_indices(**{**of, "scale_rows": scale_rows}).max()) + 1
    groups = -(-k // 128)
    return {
        "weight": rows_at(of["weight"], n, k, of["weight_stride"], ml_dtypes.float8_e4m3fn),
        "scale": rows_at(of["scale"], 1, scales, scales, np.float32)[0],
        "scale_rows": scale_rows,
        "x": rows_at(of["x"], m, k, of["x_stride"], _X[compute]),
        "x_scale": rows_at(of["x_scale"], m, groups, groups, np.float32) if of["x_scale"] else None,
        "bias": rows_at(of["bias"], 1, n, n, _Y[compute])[0] if of["bias"] else None,
        "y": rows_at(of["y"], m, n, n, _Y[compute]),
    }


def _of_quantize(*, x: int, codes: int, x_scale: int, x_stride: int, m: int, k: int) -> Memory:
    groups = -(-k // 128)
    return {
        "x": rows_at(x, m, k, x_stride, ml_dtypes.bfloat16),
        "codes": rows_at(codes, m, k, k, ml_dtypes.float8_e4m3fn),
        "x_scale": rows_at(x_scale, m, groups, groups, np.float32),
    }


def rows_at(pointer: int, rows: int, columns: int, stride: int, dtype: Any) -> NDArray[Any]:
    """Return host memory as a matrix whose rows begin every `stride` elements."""
    dtype = np.dtype(dtype)
    count = (rows - 1) * stride + columns
    memory = np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(pointer), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (stride * dtype.itemsize, dtype.itemsize))

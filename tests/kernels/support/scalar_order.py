"""The specified order of w8a32 as a scalar loop in C: an answer to the bit."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.support.linear_cases import LinearCase, scale_of_each_weight


@functools.cache
def scalar_library() -> ctypes.CDLL:
    """Build the scalar loop with fused operations only where it says so."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("gcc is not installed: the scalar reference of w8a32 is built with it. Install gcc.")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "scalar_order.so"
        source = Path(__file__).with_name("scalar_order.c")
        options = ["-O2", "-march=native", "-ffp-contract=off", "-fno-fast-math", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(source), "-lm", "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def scalar_result(case: LinearCase) -> Any:
    """Return float32 [m, n] of the scalar loop, on values that ml_dtypes decoded."""
    x = np.ascontiguousarray(case.x)
    weight = np.ascontiguousarray(case.weight).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    scale = np.ascontiguousarray(scale_of_each_weight(case))
    bias = None if case.bias is None else np.ascontiguousarray(case.bias)
    y = np.empty((case.m, case.n), np.float32)
    pointers = [None if each is None else ctypes.c_void_p(each.ctypes.data) for each in (x, weight, scale, bias, y)]
    scalar_library().scalar_order(*pointers, *(ctypes.c_int64(each) for each in (case.m, case.n, case.k)))
    return y

"""Builds the stand-in for the CUDA driver, and the environment of a process that finds it in the real one's place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("mock_driver.c")
ROOT = Path(__file__).parents[3]


def build(folder: Path) -> Path:
    """Compile the mock driver into a folder as libcuda.so.1; raises if there is no gcc: a test that needs it is not skipped."""
    library = folder / "libcuda.so.1"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    subprocess.run([*command, "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"], check=True)
    return library


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that loads the mock driver of a folder. The loader reads it when the process starts."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTHONPATH": path,
        "TENSOR_CONTRACTS_KERNEL_CACHE": str(folder / "kernel-cache"),
        "TENSOR_CONTRACTS_DISABLE_JIT": "",
    }

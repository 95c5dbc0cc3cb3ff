"""A program in a Python process of its own, in which what this process imported and was told does not count."""

from __future__ import annotations

import os
import subprocess
import sys


def python(program: str, *, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program; with `path`, nothing else is on its path beside the standard library. An exit code other than 0 fails the test."""
    command = [sys.executable, *(("-S",) if path else ()), "-c", program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TENSORHUB_", "CUDA_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment | ({"PYTHONPATH": path} if path else {}))
    assert done.returncode == 0, done.stderr[-3000:]
    return done

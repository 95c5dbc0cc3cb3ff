"""All kernels again under compute-sanitizer, where it is installed and knows the device: memory, and races on shared memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kernels.receipt.checks import CheckFailedError, NotRunError, Receipt, require

#: Tool, and what it says of a program without a fault.
_TOOLS = {"memcheck": r"ERROR SUMMARY: 0 errors", "racecheck": r"RACECHECK SUMMARY: 0 hazards"}

_SCRIPT = Path(__file__).parents[1] / "gpu_receipt.py"


def check_with_sanitizer(receipt: Receipt, timeout: float) -> None:
    """Run every tool within `timeout` seconds each."""
    for tool in _TOOLS:
        receipt.check(f"compute-sanitizer: {tool}", lambda tool=tool: _run(tool, timeout), required=False)


def _run(tool: str, timeout: float) -> str:
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise NotRunError("compute-sanitizer is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--tool", tool, "--error-exitcode", "86", sys.executable, str(_SCRIPT), "--only", "kernels", "--output", folder]
        # Each tensor in an allocation of its own: torch's cache would put many in one, and hide what runs over.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as slow:
            raise NotRunError(f"it took more than {timeout:.0f} s") from slow
    said = done.stdout + done.stderr
    if "Device not supported" in said or "not supported on this" in said:
        raise NotRunError(f"compute-sanitizer does not know this device: {_last_line(said)}")
    if re.search(_TOOLS[tool], said):
        counts = re.search(r"(\d+) passed, (\d+) failed", said)
        require(counts is not None and int(counts[1]) > 0 and int(counts[2]) == 0, f"no kernel was checked: {_last_line(said)}")
        return f"every kernel on every case: {re.search(_TOOLS[tool], said)[0]}"  # type: ignore[index]  # it matched a line ago
    if "SUMMARY" in said:
        raise CheckFailedError("\n".join(line for line in said.splitlines() if line.startswith("========="))[:4000])
    raise NotRunError(f"compute-sanitizer did not come to its end (exit {done.returncode}): {_last_line(said)}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1][:300]

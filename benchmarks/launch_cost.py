"""What one launch costs in Python, on a stand-in for the CUDA driver that does nothing: no GPU, and no time of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
_MEASURE = """
from tests.kernels.mock_driver.driver import MockDriver
from tests.kernels.mock_driver.launch_cost import launch_cost
for part, microseconds in launch_cost(MockDriver()).items():
    print(part, microseconds, sep="\\t")
"""


def print_launch_cost(scratch: Path) -> None:
    """Measure in a process that finds the stand-in where others find the driver, and print each part beside the launch alone."""
    sys.path.insert(0, str(ROOT))
    from tests.kernels.mock_driver.build import build, environment

    build(scratch)
    done = subprocess.run([sys.executable, "-c", _MEASURE], env=environment(scratch), capture_output=True, text=True, check=True)
    parts = [line.split("\t") for line in done.stdout.splitlines()]
    alone = float(parts[0][1])
    print("### One launch of w8a16 in Python, 4 x 384 x 512, on a driver that does nothing: the least of many short rounds\n")
    print(f"| | microseconds | ratio to {parts[0][0]} |\n|---|---:|---:|")
    for part, microseconds in parts:
        print(f"| {part} | {float(microseconds):.2f} | {float(microseconds) / alone:.3g} |")
    print()

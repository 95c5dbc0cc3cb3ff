"""Runs scenarios in a process of its own: `python -m tests.kernels.mock_driver.scenarios NAME...` prints a line of JSON for each.

They share the process, which loads torch once, and devices 0 (sm_90) and 1 (sm_80), which cuda.core remembers.
"""

from __future__ import annotations

import json
import sys
import traceback

# Each adds its scenarios to SCENARIOS.
from tests.kernels.mock_driver import driver_faults, emulated, right_launches, streams_and_graphs  # noqa: F401
from tests.kernels.mock_driver.driver import MockDriver
from tests.kernels.mock_driver.launch_cost import launch_cost
from tests.kernels.mock_driver.scenario import SCENARIOS, run, scenario


@scenario
def cost_of_a_launch(driver: MockDriver) -> None:
    for part, microseconds in launch_cost(driver).items():
        print(f"{part:26} {microseconds:6.2f} us", file=sys.stderr)


def main(names: list[str]) -> None:
    """Run scenarios, or all, and print of each its name, and what went wrong or nothing."""
    driver = MockDriver()
    driver.set_devices(90, 80)
    for name in names or SCENARIOS:
        wrong = ""
        try:
            run(name, driver)
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps({"name": name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

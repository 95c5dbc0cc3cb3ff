"""A pytest plugin: runs the tests that a file lists, in its order, and writes down the first that fails.

A list is no argument of the command line: names of parameters may hold whatever they like.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Final

import pytest

#: The environment variable that names the file with the list, and with `.failed` at its end the one for the answer.
SELECTION: Final = "MUTANTS_SELECTION"

#: Bytes that a run may take; a loop that a mutant makes endless would take all that there is.
_MEMORY: Final = 16 << 30


def pytest_configure() -> None:
    """Bound the memory of the process."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the listed tests, in their order."""
    places = {name: place for place, name in enumerate(json.loads(Path(os.environ[SELECTION]).read_text()))}
    items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down a test that fails, whether in its fixtures or in itself."""
    if report.failed:
        Path(f"{os.environ[SELECTION]}.failed").write_text(report.nodeid)

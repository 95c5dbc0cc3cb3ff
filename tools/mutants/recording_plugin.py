"""A pytest plugin: tells coverage which test is running, in this process and in those that it starts, and notes how long each takes.

The context of a test is its node id. What a fixture of a wider scope executes has the context of that scope, `scope:`
and the beginning of the node ids that it stands for: which test happens to be the first to ask for it is chance.

Coverage starts by itself in every Python of the virtual environment that the tests run in. A test may make another one
and install the tree there: when it starts a program of that environment, the environment is given coverage first.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import coverage
import pytest

#: The environment variable that coverage's configuration takes the context from, in processes that tests start.
CONTEXT: Final = "MUTANTS_CONTEXT"

#: The environment variable that says where the times go.
TIMES: Final = "MUTANTS_TIMES"

#: The environment variable that names a folder with nothing but the package of coverage.
COVERAGE: Final = "MUTANTS_COVERAGE"

SCOPE: Final = "scope:"

_seconds: dict[str, float] = defaultdict(float)


def pytest_configure() -> None:
    """Look at each program before it is started."""
    sys.addaudithook(_before_a_start)


def _before_a_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Let coverage start in another virtual environment, if it is one of its programs that is to be started."""
    if event != "subprocess.Popen":
        return
    program = Path(os.fsdecode(arguments[0]))
    folder = program.parents[1] if program.is_absolute() and len(program.parents) > 1 else None
    if folder is not None and (folder / "pyvenv.cfg").is_file() and not folder.samefile(sys.prefix):
        for packages in folder.glob("lib/python3.*/site-packages"):
            start = packages / "mutants_coverage.pth"
            if not start.exists():
                start.write_text(f"{os.environ[COVERAGE]}\nimport coverage; coverage.process_startup()\n")


@contextmanager
def _context(name: str) -> Iterator[None]:
    before = os.environ.get(CONTEXT, "")
    _switch(name)
    try:
        yield
    finally:
        _switch(before)


def _switch(name: str) -> None:
    os.environ[CONTEXT] = name
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(name)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give what a test executes its node id."""
    began = time.perf_counter()
    with _context(item.nodeid):
        result = yield
    _seconds[item.nodeid] += time.perf_counter() - began
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Give what a fixture of a wider scope executes the context of that scope."""
    if fixturedef.scope == "function":
        return (yield)
    with _context(SCOPE + request.node.nodeid):
        return (yield)


def pytest_sessionfinish() -> None:
    """Write the times."""
    Path(os.environ[TIMES]).write_text(json.dumps(_seconds))

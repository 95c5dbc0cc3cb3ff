"""A plugin of pytest: after `--deadline` no test is started, and the summary names the files of those that were not."""

from __future__ import annotations

import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--deadline`, in seconds since 1970; every worker of a run has the same."""
    parser.addoption("--deadline", type=float, required=True, help="the time after which no test is started")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would start after the deadline, before any fixture of it is made."""
    if time.time() > item.config.getoption("--deadline"):
        pytest.skip(f"no time was left for {item.location[0]}: `make test` runs it")

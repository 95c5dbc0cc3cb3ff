"""The environment that this project's wheel is installed in, built once for all workers, and the installer of plugins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environments import ROOT, Environment, Installer, build_wheel, install_ourselves, locked, new_environment, once


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "plugins"


@pytest.fixture(scope="session")
def our_wheel(shared_folder: Path) -> Path:
    """This project's wheel, built from the tree that the tests lie in."""
    with locked(shared_folder, "wheel"):
        if once(shared_folder, "wheel"):
            build_wheel(ROOT, shared_folder / "wheel")
        (wheel,) = (shared_folder / "wheel").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def base(shared_folder: Path, our_wheel: Path) -> Environment:
    """An environment with this project's wheel and its dependencies, without torch. Nobody may change it."""
    folder, elsewhere = shared_folder / "environment", shared_folder / "elsewhere"
    with locked(shared_folder, "environment"):
        if once(shared_folder, "environment"):
            install_ourselves(new_environment(folder, elsewhere), our_wheel)
    return Environment(folder, elsewhere)


@pytest.fixture(scope="session")
def install(base: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installer]:
    """Installs plugins; a site is what `install(one, other)` returns."""
    installer = Installer(base, tmp_path_factory.mktemp("installed"))
    yield installer
    installer.close()

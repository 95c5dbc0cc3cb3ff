"""The public names of the package are what they say, whatever was imported before."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import tensorhub_contracts

NAMES = [name for name in tensorhub_contracts.__all__ if name != "__version__"]


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    """A submodule becomes an attribute of the package when it is imported, and must not hide a name of it."""
    for module in pkgutil.walk_packages(tensorhub_contracts.__path__, "tensorhub_contracts."):
        importlib.import_module(module.name)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_no_module(name: str) -> None:
    found = getattr(tensorhub_contracts, name)
    assert not inspect.ismodule(found)
    assert found is getattr(importlib.import_module(f"tensorhub_contracts.{tensorhub_contracts._HOMES[name]}"), name)


def test_names_are_listed_once_and_in_order() -> None:
    assert sorted(tensorhub_contracts.__all__) == tensorhub_contracts.__all__
    assert set(NAMES) == set(tensorhub_contracts._HOMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'inspekt'"):
        _ = tensorhub_contracts.inspekt

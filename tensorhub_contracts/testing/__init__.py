"""The conformance kit: a plugin's author subclasses one class, gives the contract, and gets the whole suite."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorhub_contracts.testing.conformance import DecoderContractTests
    from tensorhub_contracts.testing.sample_units import SampleUnit, StoredTensor

__all__ = ["DecoderContractTests", "SampleUnit", "StoredTensor"]

_HOMES = {"DecoderContractTests": "conformance", "SampleUnit": "sample_units", "StoredTensor": "sample_units"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that pytest can rewrite the assertions of the kit before that."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

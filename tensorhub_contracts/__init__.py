"""Named, versioned tensor layouts, and the proof that a checkpoint is in one, from its headers alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorhub_contracts.errors import Refusal, RegistryError, TensorhubError, Violation
    from tensorhub_contracts.inspection import Inspection, Unit
    from tensorhub_contracts.inspector import inspect, inspect_hf_fp8_blockwise
    from tensorhub_contracts.registry import Registry, load_registry
    from tensorhub_contracts.resolution import resolve

__version__ = "0.1.0"

_HOMES = {
    "Inspection": "inspection",
    "Refusal": "errors",
    "Registry": "registry",
    "RegistryError": "errors",
    "TensorhubError": "errors",
    "Unit": "inspection",
    "Violation": "errors",
    "inspect": "inspector",
    "inspect_hf_fp8_blockwise": "inspector",
    "load_registry": "registry",
    "resolve": "resolution",
}

__all__ = [
    "Inspection",
    "Refusal",
    "Registry",
    "RegistryError",
    "TensorhubError",
    "Unit",
    "Violation",
    "__version__",
    "inspect",
    "inspect_hf_fp8_blockwise",
    "load_registry",
    "resolve",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing the package alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Whether the modules that a decoder requires are there: looked for, and not imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def missing_requirements(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules, `torch` or `cuda.bindings.nvrtc`, that an import would not find.

    No module and none of its parents is imported. A folder without code, as an uninstalled package leaves one behind,
    counts as missing unless a deeper name is asked for: namespace packages are such folders.
    """
    return tuple(module for module in modules if not _is_there(module))


def _is_there(module: str) -> bool:
    parts = module.split(".")
    names = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    if any(name in sys.modules and sys.modules[name] is None for name in names):
        return False  # how Python notes that an import is forbidden
    if _has_code(sys.modules.get(module)):
        return True
    path: Sequence[str] | None = None
    spec = None
    for name in names:
        spec = _find(name, path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
        if path is None and name != module:
            return False
    return spec is not None and spec.loader is not None and (spec.origin is not None or spec.submodule_search_locations is None)


def _has_code(module: ModuleType | None) -> bool:
    """Whether an imported module is more than a namespace, whose folder may be a leftover."""
    return module is not None and (getattr(module, "__file__", None) is not None or not hasattr(module, "__path__"))


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Ask the finders of the import system in their order; where one fails, an import would fail too, and nothing is found."""
    for finder in sys.meta_path:
        if not hasattr(finder, "find_spec"):
            continue  # of a kind that imports no longer ask
        try:
            spec = finder.find_spec(name, path)
        except Exception:
            return None
        if spec is not None:
            return spec
    return None

"""Whether the modules that a decoder requires are there: looked for, and not imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec


def missing_requirements(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules, `torch` or `cuda.bindings.nvrtc`, that an import would not find.

    No module and none of its parents is imported. A folder without code, as an uninstalled package leaves one behind,
    counts as missing unless a deeper name is asked for: namespace packages are such folders.
    """
    return tuple(module for module in modules if not _is_there(module))


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None  # None is how Python notes that an import is forbidden
    parts = module.split(".")
    path: Sequence[str] | None = None
    spec = None
    for depth in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:depth]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
        if path is None and depth < len(parts):
            return False
    return spec is not None and spec.loader is not None and (spec.origin is not None or spec.submodule_search_locations is None)


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Ask each finder of the import system; a finder that fails has found nothing."""
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:
            # A foreign finder's fault; an import would raise it, so the module is not there for us.
            continue
        if spec is not None:
            return spec
    return None

"""Whether what a decoder requires is there: modules, and a torch that is built with CUDA. Looked for, and not imported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

#: Required by a decoder that only a CUDA device runs: what torch calls itself is a text, and None in a build without CUDA.
TORCH_WITH_CUDA: Final = "torch.version.cuda"


def missing_requirements(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the modules, `torch` or `cuda.bindings.nvrtc`, that an import would not find.

    No module and none of its parents is imported. A folder without code, as an uninstalled package leaves one behind,
    counts as missing unless a deeper name is asked for: namespace packages are such folders. `torch.version.cuda` is no module:
    it is missing unless the torch that an import would find says in its `version.py` that it is built with CUDA.
    """
    return tuple(module for module in modules if not (_torch_has_cuda() if module == TORCH_WITH_CUDA else _is_there(module)))


def missing_in_words(missing: Sequence[str]) -> str:
    """Return why missing requirements are missing, as a clause."""
    modules = ", ".join(module for module in missing if module != TORCH_WITH_CUDA)
    if modules:
        return f"{modules} cannot be imported here"
    return "torch built with CUDA: the one that is installed is not, or does not say so in torch/version.py"


def what_to_install(missing: Sequence[str], *, shipped: bool, distribution: str) -> str:
    """Return what brings missing requirements; `shipped` says whether the decoder is one of ours, whose extras are known."""
    if not shipped:
        return f"Install what brings {' and '.join(missing)}, which {distribution} needs."
    extras = [extra for extra, root in (("torch", "torch"), ("cu13", "cuda")) if any(each.partition(".")[0] == root for each in missing)]
    if TORCH_WITH_CUDA in missing and "torch" not in missing:
        return "Install a torch that is built with CUDA" + (", and pip install 'tensorhub-contracts[cu13]'." if "cu13" in extras else ".")
    return f"pip install 'tensorhub-contracts[{','.join(extras)}]'"


def _torch_has_cuda() -> bool:
    """Whether torch's `version.py`, which is not run, gives a text for `cuda`."""
    spec = _find("torch", None)
    if spec is None or not spec.origin:
        return False
    try:
        statements = ast.parse(Path(spec.origin).with_name("version.py").read_text("utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return False
    said = ""
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id="cuda")], value=value) | ast.AnnAssign(target=ast.Name(id="cuda"), value=value):
                said = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
    return bool(said)


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

"""Copies of the tree, and the environment in which Python imports a copy and nothing of the original."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

_TOOL = Path(__file__).parent
_LOCATE = """
import importlib.util, json, sys
print(json.dumps({name: getattr(importlib.util.find_spec(name), "origin", None) for name in sys.argv[1:]}))
"""


class TreeError(Exception):
    """The tree is not one that can be tested this way."""


def files_of(root: Path) -> list[Path]:
    """Return the files of the tree, relative to its root: those that git knows or would, or those in no hidden folder."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-zco", "--exclude-standard"], capture_output=True)
    if listed.returncode == 0:
        paths = {Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name}
    else:
        every = (path.relative_to(root) for path in root.rglob("*"))
        paths = {path for path in every if not any(part.startswith(".") or part == "__pycache__" for part in path.parts)}
    return sorted(path for path in paths if (root / path).is_file())


def copy_tree(root: Path, destination: Path) -> Path:
    """Copy the files of the tree; return where they are, as Python will name them."""
    for path in files_of(root):
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, destination / path)
    return destination.resolve()


def state_of(root: Path, more: Iterable[str]) -> str:
    """Return a digest of everything that can decide on what tests execute: all files but documents and this tool."""
    digest = hashlib.sha256(json.dumps([sys.version, *more]).encode())
    for path in files_of(root):
        if path.suffix != ".md" and not (root / path).resolve().is_relative_to(_TOOL):
            digest.update(f"{path}\0{hashlib.sha256((root / path).read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()[:16]


def import_roots(root: Path) -> tuple[Path, ...]:
    """Return the folders, relative to the root, that an installation for editing puts on the path."""
    project = root / "pyproject.toml"
    settings = tomllib.loads(project.read_text()) if project.is_file() else {}
    folders = settings.get("tool", {}).get("hatch", {}).get("build", {}).get("dev-mode-dirs", ["."])
    return tuple(Path(folder) for folder in folders)


def environment(root: Path, copy: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a run, which imports from the roots of the copy, and from the original in no case."""
    given = [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [path for path in given if not path.is_relative_to(root.resolve())]
    paths = [*(copy / folder for folder in import_roots(root)), _TOOL.parent, *kept]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **(more or {})}


def module_name(root: Path, module: str) -> str:
    """Return the name by which a file of the tree is imported: from the deepest root that it lies below."""
    path = Path(module)
    folders = [folder for folder in import_roots(root) if path.is_relative_to(folder)]
    if not folders:
        raise TreeError(f"{module} lies in none of the folders that are imported from: {', '.join(map(str, import_roots(root)))}")
    parts = path.relative_to(max(folders, key=lambda folder: len(folder.parts))).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def prove_imported_from(root: Path, copy: Path, modules: Iterable[str]) -> None:
    """Raise `TreeError` unless Python, in the environment of a run, finds each module in the copy."""
    names = {module_name(root, module): copy / module for module in modules}
    command = [sys.executable, "-c", _LOCATE, *names]
    found = subprocess.run(command, cwd=copy.parent, env=environment(root, copy), capture_output=True, text=True)
    if found.returncode:
        raise TreeError(f"the modules cannot be found:\n{found.stderr}")
    for name, origin in json.loads(found.stdout).items():
        if origin is None or Path(origin).resolve() != names[name]:
            raise TreeError(f"{name} is imported from {origin}, and not from the copy, {names[name]}")

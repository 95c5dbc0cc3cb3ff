"""Puts the registry into the distribution: the TOML itself into a wheel, and the compiled forms of TOML files, which are read faster.

An editable install reads the registry at the repository's root. A compiled form counts only beside the text that it was made
from, so that a change of the TOML is seen at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "tensorhub_contracts"

#: The TOML file, its compiled form in the package, and the function that compiles it.
_COMPILED = (
    ("registry.toml", "registry.json", f"{_PACKAGE}.registry.compiled:compile_registry"),
    (f"{_PACKAGE}/refusal_codes.toml", "refusal_codes.json", f"{_PACKAGE}.refusal_codes:compile_codes"),
)

#: Runs in a process of its own, with the modules of the tree that is built: this process may have imported others.
_COMPILE = """
import importlib, pathlib, sys
source, module, function = sys.argv[1:]
compile_source = getattr(importlib.import_module(module), function)
sys.stdout.buffer.write(compile_source(pathlib.Path(source).read_bytes().decode()).encode())
"""


class RegistryHook(BuildHookInterface[Any]):
    """Compiles the registry and the list of codes, and includes all forms in a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        for source, name, function in _COMPILED:
            command = [sys.executable, "-c", _COMPILE, source, *function.split(":")]
            compiled = subprocess.run(command, cwd=self.root, stdout=subprocess.PIPE, check=True).stdout
            place = Path(self.root) / _PACKAGE / name
            unfinished = place.with_suffix(f".{os.getpid()}.partial")
            unfinished.write_bytes(compiled)
            unfinished.replace(place)  # whoever reads meanwhile sees the old one or the new one
            if version == "standard":
                build_data["force_include"][str(place)] = f"{_PACKAGE}/{name}"
        if version == "standard":
            build_data["force_include"]["registry.toml"] = f"{_PACKAGE}/registry.toml"

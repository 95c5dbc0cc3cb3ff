"""Puts the registry into the distribution: the TOML itself into a wheel, and its compiled form, which is read faster.

An editable install reads the TOML at the repository's root. The compiled form counts only beside the text that it was made
from, so that a change of the TOML is seen at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RegistryHook(BuildHookInterface[Any]):
    """Compiles the registry, and includes both forms in a standard wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from tensorhub_contracts.registry.compiled import COMPILED, compile_registry

        source = (Path(self.root) / "registry.toml").read_text("utf-8")
        compiled = Path(self.root) / "tensorhub_contracts" / COMPILED
        compiled.write_text(compile_registry(source), "utf-8")
        if version == "standard":
            build_data["force_include"]["registry.toml"] = "tensorhub_contracts/registry.toml"
            build_data["force_include"][str(compiled)] = f"tensorhub_contracts/{COMPILED}"

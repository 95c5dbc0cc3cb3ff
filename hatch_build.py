"""Puts registry.toml into the wheel. An editable install reads it at the repository's root and gets no stale copy."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RegistryHook(BuildHookInterface[Any]):
    """Includes the registry in a standard wheel only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["registry.toml"] = "tensorhub_contracts/registry.toml"

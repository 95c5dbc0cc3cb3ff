"""Weights that a number tells apart and that share the sidecars of their module: `table.shard_0.weight`, `table.shard_1.weight`, …"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import attrs

from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.sidecar_names import SharedName, SidecarNames

#: A number as Python writes it.
_NUMBER: Final = "0|[1-9][0-9]{0,8}"


@attrs.frozen(slots=False, repr=False)
class Sharing(Readable):
    """The weights that share a sidecar, by their numbers, and what the registry says of their names."""

    name: SharedName
    weights: Mapping[int, str]


class NumberedWeights:
    """Finds the numbered weights of a module; the names are looked at once, when a sidecar that they might share has no weight."""

    def __init__(self, weights: Iterable[str], sidecar_names: SidecarNames) -> None:
        self._weights = weights
        self._shared = sidecar_names.shared

    def of_sidecar(self, sidecar: str, suffix: str) -> Sharing | None:
        """Return the weights that share a sidecar, whose name ends in `suffix`, or None if there is none."""
        if suffix not in self._shared:
            return None
        module = sidecar.removesuffix(suffix)
        found = ((name, self._of_module.get((module, name.before, name.after))) for name in self._shared[suffix])
        return next((Sharing(name, weights) for name, weights in found if weights), None)

    @cached_property
    def _of_module(self) -> dict[tuple[str, str, str], dict[int, str]]:
        """The weights by module and by the text before and after the number."""
        ways = {(name.before, name.after) for names in self._shared.values() for name in names}
        found: dict[tuple[str, str, str], dict[int, str]] = {}
        for before, after in ways:
            for weight in self._weights:
                module, numbered, number = weight.removesuffix(after).rpartition(before)
                if numbered and weight.endswith(after) and re.fullmatch(_NUMBER, number):
                    found.setdefault((module, before, after), {})[int(number)] = weight
        return found

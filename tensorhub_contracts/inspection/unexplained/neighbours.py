"""What lies beside a weight under names that no layout knows: a scale that is called otherwise is not a missing one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property

from tensorhub_contracts.registry.sidecar_names import SidecarNames


class Neighbours:
    """Finds the tensors beside a weight; the names are sorted once, when the first weight without a scale is met."""

    def __init__(self, names: Iterable[str], sidecar_names: SidecarNames) -> None:
        self._names = names
        self._sidecar_names = sidecar_names

    def unknown_neighbours(self, weight: str) -> str:
        """Return, for a message, the tensors beside a weight that are neither its bias nor a sidecar that the registry knows.

        Beside `x.weight` is what begins with `x.`; beside a bare parameter `x`, what begins with `x_`.
        """
        module = weight.removesuffix(".weight")
        prefix = module + "." if module != weight else weight + "_"
        found = []
        for name in self._beginning_with(prefix):
            rest = name[len(prefix) :]
            last = name.rpartition(".")[2]
            if "." not in rest and rest not in ("weight", "bias"):
                sidecar = self._sidecar_names[last]
                if sidecar is None or (sidecar.needs_quantized and sidecar.role == "weight-scale"):
                    found.append(last)
        return ", ".join(found[:3])

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._names)

    def _beginning_with(self, prefix: str) -> Iterator[str]:
        names = self._sorted
        place = bisect_left(names, prefix)
        while place < len(names) and names[place].startswith(prefix):
            yield names[place]
            place += 1

"""Sidecar names: which tensor is a scale, and of what, judged on the last dotted segment of its name."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import Contract, Payload, SidecarName


@attrs.frozen(slots=False, repr=False, cache_hash=True)
class SharedName(Readable):
    """A sidecar of a module that numbered weights share: `{module}` and `suffix`; a weight is `{module}`, `before`, number, `after`."""

    suffix: str
    before: str
    after: str


class SidecarNames(dict[str, "SidecarName | None"]):
    """Maps the last dotted segment of a tensor's name to what it means as a sidecar, or None; remembers each answer.

    The longest suffix wins. A suffix that begins with a dot matches a whole segment only: `.weight_scale` matches
    `layers.0.weight_scale` and not `layers.0.my_weight_scale`. The suffixes in `owned` are plugins': the map is without
    them, so that a name means what it means where no plugin is installed, and `owned_meaning` has theirs.
    """

    def __init__(
        self,
        sidecars: tuple[SidecarName, ...],
        payloads: tuple[Payload, ...],
        contracts: Iterable[Contract] = (),
        *,
        owned: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        contracts = tuple(contracts)
        self.markers = frozenset(marker.name for contract in contracts for marker in contract.marker)
        self.shared = _shared_names(contracts)
        self.sidecars = sorted(sidecars, key=lambda sidecar: -len(sidecar.suffix))
        self.owned = tuple(sidecar for sidecar in self.sidecars if sidecar.suffix in owned)
        self._shipped = tuple(sidecar for sidecar in self.sidecars if sidecar.suffix not in owned)
        self.payloads = payloads
        self.primary_suffixes = sorted({*(payload.suffix for payload in payloads), ".weight"}, key=len, reverse=True)

    def __missing__(self, segment: str) -> SidecarName | None:
        self[segment] = found = _first(segment, self._shipped)
        return found

    def owned_meaning(self, segment: str) -> SidecarName | None:
        """Return the plugin's sidecar that a segment names by a longer suffix than any other sidecar's, or None."""
        found = _first(segment, self.owned)
        if found is None:
            return None
        other = self[segment]
        return found if other is None or len(found.suffix) > len(other.suffix) else None

    def payload_of(self, segment: str, dtype: str) -> Payload | None:
        """Return the payload whose name the segment bears, if the dtype is one of its own."""
        dotted = "." + segment
        for payload in self.payloads:
            if ends_in(dotted, payload.suffix) and (not payload.dtypes or dtype in payload.dtypes):
                return payload
        return None

    def of_suffix(self, suffix: str) -> SidecarName | None:
        """Return the sidecar of a tensor whose name is any stem followed by `suffix`, or None."""
        segment = suffix.rpartition(".")[2] if "." in suffix else "stem" + suffix
        return self.owned_meaning(segment) or self[segment]

    def primary_suffix(self, name: str) -> str:
        """Return what a primary tensor's name ends in: `.weight`, a payload's suffix, or nothing for a bare parameter."""
        return next((suffix for suffix in self.primary_suffixes if name.endswith(suffix)), "")

    def relative_to(self, primary: str, side: str) -> str | None:
        """Return the suffix of the sidecar that is named `side` where its primary tensor is named `primary`.

        Both are what follows one and the same stem: `.weight` and `.weight_scale_inv` give `_scale_inv`. None if no
        sidecar says so.
        """
        sidecar = self.of_suffix(side)
        if sidecar is None or not side.endswith(sidecar.suffix):
            return None
        stem = side[: len(side) - len(sidecar.suffix)]
        return sidecar.suffix if any(stem + beside == primary for beside in sidecar.beside) else None


def _first(segment: str, sidecars: tuple[SidecarName, ...]) -> SidecarName | None:
    """Return the first sidecar whose suffix a segment ends in."""
    dotted = "." + segment
    return next((sidecar for sidecar in sidecars if ends_in(dotted, sidecar.suffix)), None)


def _shared_names(contracts: Iterable[Contract]) -> dict[str, tuple[SharedName, ...]]:
    """Return what numbered weights share, by the sidecar's suffix."""
    found: dict[str, dict[SharedName, None]] = {}
    for form in (form for contract in contracts for form in contract.form if "weight" in form.tensors and form.numbered):
        before, _, after = form.primary.suffix.partition("{number}")
        for role, tensor in form.tensors.items():
            if role != "weight":
                found.setdefault(tensor.suffix, {})[SharedName(tensor.suffix, before, after)] = None
    return {suffix: tuple(names) for suffix, names in found.items()}


def ends_in(dotted: str, suffix: str) -> bool:
    """Whether a last segment, with its dot, ends in a suffix: one with a dot of its own stands for all of the segment."""
    return dotted == suffix if suffix.startswith(".") else dotted.endswith(suffix)

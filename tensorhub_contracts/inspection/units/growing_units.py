"""Units while their sidecars are found one by one: equal ones are one object, and each step is worked out once."""

from __future__ import annotations

from tensorhub_contracts.checkpoints.geometry import NARROW_FLOAT, Geometry
from tensorhub_contracts.inspection.units.tensor_groups import Sidecar
from tensorhub_contracts.registry.sidecar_names import SidecarNames


class GrowingUnit:
    """A geometry while its sidecars are found one by one, with the names that have it. Equal ones are one object."""

    __slots__ = ("geometry", "names", "sidecars", "suffix")

    def __init__(self, suffix: str, geometry: Geometry, sidecars: tuple[Sidecar, ...]) -> None:
        self.suffix = suffix
        self.geometry = geometry
        self.sidecars = sidecars
        self.names: list[str] = []


class NewUnits(dict[Geometry, "GrowingUnit | None"]):
    """Makes one unit without sidecars for each geometry, for names that end in `suffix`.

    Values of 16 bits and more and integers have none: under a name like that they are not quantized.
    """

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def __missing__(self, geometry: Geometry) -> GrowingUnit | None:
        self[geometry] = made = GrowingUnit(self.suffix, geometry, ()) if geometry.dtype in NARROW_FLOAT else None
        return made

    def of_packed(self, geometry: Geometry) -> GrowingUnit:
        """Return the unit of a tensor that is known to be quantized, whatever its dtype."""
        made = self[geometry]
        if made is None:
            made = self[geometry] = GrowingUnit(self.suffix, geometry, ())
        return made


class SidecarLists(dict[str, "list[tuple[str, Geometry]] | None"]):
    """Maps the last segment of a name to the list that collects the sidecars of its name, or None; remembers each answer."""

    def __init__(self, sidecar_names: SidecarNames) -> None:
        super().__init__()
        self.sidecar_names = sidecar_names
        self.of_sidecar: dict[str, list[tuple[str, Geometry]]] = {sidecar.suffix: [] for sidecar in sidecar_names.sidecars}
        self.markers: list[tuple[str, Geometry]] = []

    def __missing__(self, segment: str) -> list[tuple[str, Geometry]] | None:
        names = self.sidecar_names
        if segment in names.markers:
            self[segment] = self.markers
            return self.markers
        sidecar = (names.owned_meaning(segment) if names.owned else None) or names[segment]
        self[segment] = listed = None if sidecar is None else self.of_sidecar[sidecar.suffix]
        return listed


class WithSidecar(dict[tuple[GrowingUnit, Geometry], GrowingUnit]):
    """Makes the unit that another one becomes when a sidecar of this name is found."""

    def __init__(self, sidecar_suffix: str) -> None:
        super().__init__()
        self.sidecar_suffix = sidecar_suffix

    def __missing__(self, step: tuple[GrowingUnit, Geometry]) -> GrowingUnit:
        unit, geometry = step
        sidecars = (*unit.sidecars, Sidecar(self.sidecar_suffix, geometry.dtype, geometry.shape))
        self[step] = made = GrowingUnit(unit.suffix, unit.geometry, sidecars)
        return made

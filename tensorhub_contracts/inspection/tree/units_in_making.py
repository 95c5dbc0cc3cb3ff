"""Units while their sidecars are found one by one: those that look alike are one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorhub_contracts.checkpoints.geometry import NARROW_FLOAT, Geometry

if TYPE_CHECKING:
    from tensorhub_contracts.inspection.grouping import Sidecar


class UnitInMaking:
    """A geometry while its sidecars are found one by one, with the names that have it. Equal ones are one object."""

    __slots__ = ("geometry", "names", "sidecars", "suffix")

    def __init__(self, suffix: str, geometry: Geometry, sidecars: tuple[Sidecar, ...]) -> None:
        self.suffix = suffix
        self.geometry = geometry
        self.sidecars = sidecars
        self.names: list[str] = []


class NewUnits(dict[Geometry, "UnitInMaking | None"]):
    """Makes one unit without sidecars for each geometry, for names that end in `suffix`.

    Values of 16 bits and more and integers have none: under a name like that they are not quantized.
    """

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix

    def __missing__(self, geometry: Geometry) -> UnitInMaking | None:
        self[geometry] = made = UnitInMaking(self.suffix, geometry, ()) if geometry.dtype in NARROW_FLOAT else None
        return made

    def of_packed(self, geometry: Geometry) -> UnitInMaking:
        """Return the unit of a tensor that is known to be quantized, whatever its dtype."""
        made = self[geometry]
        if made is None:
            made = self[geometry] = UnitInMaking(self.suffix, geometry, ())
        return made

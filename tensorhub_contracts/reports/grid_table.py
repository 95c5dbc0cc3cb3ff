"""The table of weights and scales: a line for each layout of the units, and what tells apart those that look alike."""

from __future__ import annotations

from collections.abc import Sequence

from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.reports.summary import GridRow

_HEADS = ("weight", "scale", "units", "beside it", "")
_SIDES = "llrll"


def grid_table(grids: Sequence[GridRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return heads, lines and the side of each column; the column of what tells rows apart is there if any look alike."""
    alike: dict[tuple[str, str], list[GridRow]] = {}
    for row in grids:
        alike.setdefault(_looks(row), []).append(row)
    lines = []
    for row in grids:
        looks = _looks(row)
        shown = "" if row.orientation_shown else "orientation not shown"
        lines.append((*looks, f"{row.units:,}", _difference(row, alike[looks]), shown))
    columns = [number for number in range(len(_HEADS)) if number != 3 or any(line[3] for line in lines)]
    kept = [tuple(line[number] for number in columns) for line in lines]
    return tuple(_HEADS[number] for number in columns), kept, "".join(_SIDES[number] for number in columns)


def _looks(row: GridRow) -> tuple[str, str]:
    scale = f"{row.scale_dtype} {write_shape(row.grid)}" if row.scale_dtype else "none"
    return f"{row.weight_dtype} {write_shape(row.weight_shape)}", scale


def _difference(row: GridRow, alike: Sequence[GridRow]) -> str:
    """Return the sidecars, or else form and scale, in which a row differs from those that look like it; nothing if none does."""
    shared = set.intersection(*(set(each.sidecars) for each in alike))
    if any(set(each.sidecars) != shared for each in alike):
        names = [f"{each.name.lstrip('.')} {each.dtype} {write_shape(each.shape)}" for each in row.sidecars if each not in shared]
        return ", ".join(names) or "-"
    return f"{row.form} {row.scale_name}".strip() if len(alike) > 1 else ""

"""The counts that reports show: by prefix, by grid, and the violations grouped by what they say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import attrs

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.prefixes import is_multi_token_prediction, layer_count, prefix_of
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.inspection.units.tensor_groups import Sidecar
from tensorhub_contracts.readable import Readable

if TYPE_CHECKING:
    from pathlib import Path


@attrs.frozen(slots=False, repr=False)
class PrefixRow(Readable):
    """How many tensors lie under a prefix, and of what kind; `units` counts those in the judged contract."""

    prefix: str
    tensors: int
    units: int
    multi_token_prediction: int
    unquantized: int
    unquantized_dtypes: tuple[str, ...]


@attrs.frozen(slots=False, repr=False)
class GridRow(Readable):
    """How many units share one layout; `sidecars` are those beside the scale. No two rows are equal in all but their count."""

    weight_dtype: str
    weight_shape: tuple[int, ...]
    scale_dtype: str
    grid: tuple[int, ...]
    units: int
    orientation_shown: bool
    form: str
    scale_name: str
    sidecars: tuple[Sidecar, ...]


@attrs.frozen(slots=False, repr=False)
class ViolationGroup(Readable):
    """Violations that say the same of several objects."""

    code: str
    expected: str
    found: str
    remedy: str
    resembles: str
    objects: tuple[tuple[str, str], ...]


def prefix_rows(inspection: Inspection) -> tuple[PrefixRow, ...]:
    """Return a row for each prefix, in the order of the names."""
    checkpoint, groups = inspection.checkpoint, inspection.groups
    if checkpoint is None or groups is None:
        return ()
    layers = layer_count(checkpoint.config)
    prefixes = {name: prefix_of(name) for name in checkpoint.shard_of}
    tensors = Counter(prefixes.values())
    units: Counter[str] = Counter()
    predicting: Counter[str] = Counter()
    for name in inspection.layouts:
        prefix = prefixes[name]
        units[prefix] += 1
        predicting[prefix] += is_multi_token_prediction(name, layers)
    unquantized: Counter[str] = Counter()
    dtypes: defaultdict[str, set[str]] = defaultdict(set)
    for name, geometry in groups.unquantized.items():
        prefix = prefixes[name]
        unquantized[prefix] += 1
        dtypes[prefix].add(geometry.dtype)
    return tuple(
        PrefixRow(prefix, count, units[prefix], predicting[prefix], unquantized[prefix], tuple(sorted(dtypes[prefix])))
        for prefix, count in sorted(tensors.items())
    )


def grid_rows(inspection: Inspection) -> tuple[GridRow, ...]:
    """Return a row for each layout of the units, the most frequent first."""
    rows = sorted(inspection.units_of.items(), key=lambda item: (-len(item[1]), item[0].weight_shape))
    return tuple(
        GridRow(
            weight_dtype=layout.weight_dtype,
            weight_shape=layout.weight_shape,
            scale_dtype=layout.scale_dtype,
            grid=layout.grid,
            units=len(names),
            orientation_shown=layout.orientation_shown,
            form=layout.form,
            scale_name=layout.scale_name,
            sidecars=tuple(each for each in layout.sidecars if each.name != layout.scale_name),
        )
        for layout, names in rows
    )


def violation_groups(violations: tuple[Violation, ...]) -> tuple[ViolationGroup, ...]:
    """Group violations that differ only in their object, in the order in which they were found."""
    groups: dict[tuple[str, str, str, str, str], list[tuple[str, str]]] = {}
    for each in violations:
        key = (each.code, each.expected, each.found, each.remedy, each.resembles)
        groups.setdefault(key, []).append((each.object, each.shard))
    return tuple(ViolationGroup(*key, objects=tuple(objects)) for key, objects in groups.items())


def file_of(inspection: Inspection, shard: str) -> Path:
    """Return the file that a violation is about: a shard of the checkpoint, a file that is named by its path, or all of it."""
    from pathlib import Path  # the report for people needs none

    path = Path(inspection.path)
    if not shard:
        return path
    named = Path(shard)
    return named if named.name != shard or not path.is_dir() else path / inspection.component / named


def size_in_words(size: int) -> str:
    """Write a size in bytes with a decimal unit: 27.6 GB."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{size:,} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"

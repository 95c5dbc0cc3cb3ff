"""Finds what installed distributions declare in the group `tensorhub.decoders`, in one pass over their metadata.

Nothing is imported. Metadata that is stale, doubled or damaged is survived and listed.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tensorhub_contracts.plugin_presence import GROUP
from tensorhub_contracts.plugin_selection import normalized

SHIPPED_DISTRIBUTION: Final = "tensorhub-contracts"
UNKNOWN: Final = "unknown distribution"


class EntryPointRecord(msgspec.Struct, frozen=True, order=True):
    """One entry point as one distribution's metadata declares it; `value` is `module` or `module:attribute`."""

    distribution: str
    name: str
    value: str
    version: str
    metadata: str

    @property
    def names(self) -> tuple[str, str]:
        """The names that it can be allowed or blocked by, normalized: its own and that of its distribution."""
        return normalized(self.name), normalized(self.distribution)

    @property
    def shipped(self) -> bool:
        """Whether this distribution declares it."""
        return normalized(self.distribution) == SHIPPED_DISTRIBUTION


class DamagedMetadata(msgspec.Struct, frozen=True, order=True):
    """A distribution whose metadata cannot be used, by the path of its metadata."""

    metadata: str
    reason: str


class MetadataScan(msgspec.Struct, frozen=True):
    """What one pass found: how many distributions there are, what they declare, and what is damaged; sorted."""

    distributions: int
    entry_points: tuple[EntryPointRecord, ...]
    damaged: tuple[DamagedMetadata, ...]


def scan_metadata() -> MetadataScan:
    """Read the entry points of every distribution on `sys.path` once.

    The answer does not depend on the order of the path or of a folder.
    """
    count = 0
    records: set[EntryPointRecord] = set()
    damaged: set[DamagedMetadata] = set()
    for distribution in _distributions(damaged):
        count += 1
        metadata = _place(distribution)
        try:
            found = list(_entry_points(distribution))
            if _lacks_metadata(distribution):
                damaged.add(DamagedMetadata(metadata, "no METADATA" + (f"; it declares {', '.join(n for n, _ in found)}" if found else "")))
                continue
            if found:
                name, version = _identity(distribution)
                records.update(EntryPointRecord(name, key, value, version, metadata) for key, value in found)
        except Exception as error:
            # Whatever is wrong with the metadata of one distribution is its own affair: it is listed, and the others are read.
            damaged.add(DamagedMetadata(metadata, f"{type(error).__name__}: {error}"))
    return MetadataScan(count, tuple(sorted(records)), tuple(sorted(damaged)))


def _distributions(damaged: set[DamagedMetadata]) -> Iterator[importlib.metadata.Distribution]:
    """Yield what each finder of the import system knows: what `importlib.metadata.distributions` asks, and each by itself."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        try:
            found = list(find(importlib.metadata.DistributionFinder.Context())) if find is not None else []
        except Exception as error:
            # A foreign finder's fault: what it knows is unknown, and what the others know is not.
            damaged.add(DamagedMetadata(f"finder {getattr(finder, '__name__', type(finder).__name__)}", f"{type(error).__name__}: {error}"))
            continue
        yield from found


def _place(distribution: importlib.metadata.Distribution) -> str:
    """Return the path of a distribution's metadata, the same however the import path spells it."""
    folder = getattr(distribution, "_path", None)
    return type(distribution).__name__ if folder is None else str(Path(str(folder)).resolve())


def _entry_points(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, str]]:
    """Yield name and value of each entry point of the group."""
    text = distribution.read_text("entry_points.txt")
    if text is None:
        file = _file(distribution, "entry_points.txt")
        if file is not None and file.exists():
            raise OSError("entry_points.txt cannot be read")
        return
    if GROUP not in text:
        return
    for entry_point in distribution.entry_points:
        if entry_point.group == GROUP:
            yield entry_point.name, entry_point.value


def _lacks_metadata(distribution: importlib.metadata.Distribution) -> bool:
    """Whether a .dist-info folder is a leftover: it has no METADATA."""
    file = _file(distribution, "METADATA")
    return file is not None and str(getattr(distribution, "_path", "")).endswith(".dist-info") and not file.exists()


def _file(distribution: importlib.metadata.Distribution, name: str) -> Any:
    """Return a path inside the metadata folder: the standard library has it, and gives it out under a private name only."""
    folder = getattr(distribution, "_path", None)
    return None if folder is None else folder / name


def _identity(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return name and version; a distribution of a foreign finder may have none."""
    metadata = distribution.metadata
    return (metadata["Name"] or UNKNOWN) if metadata else UNKNOWN, (metadata["Version"] or "") if metadata else ""

"""What the metadata of installed distributions declares, read once, and which of them a plugin's module belongs to."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs

import tensorhub_contracts
from tensorhub_contracts.plugins.selection import normalized
from tensorhub_contracts.plugins.shipped_only import GROUP

SHIPPED_DISTRIBUTION: Final = "tensorhub-contracts"

#: The group of entry points that commands are declared in.
COMMANDS: Final = "tensorhub.commands"

UNKNOWN: Final = "unknown distribution"


@attrs.frozen(order=True)
class EntryPointRecord:
    """One entry point as one distribution's metadata declares it; `value` is `module` or `module:attribute`."""

    distribution: str
    name: str
    value: str
    version: str
    metadata: str
    #: Whether the distribution that declares it is the one that this package is a file of.
    shipped: bool = False

    @property
    def title(self) -> str:
        """The entry point and who declares it, in a few words: `int8 (acme-int8 0.1.0)`."""
        return f"{self.name} ({self.distribution}{' ' + self.version if self.version else ''})"

    @property
    def names(self) -> tuple[str, str]:
        """The names that it can be allowed or blocked by, normalized: its own and that of its distribution."""
        return normalized(self.name), normalized(self.distribution)


@attrs.frozen(order=True)
class DamagedMetadata:
    """A distribution whose metadata cannot be used, by the path of its metadata."""

    metadata: str
    reason: str


@attrs.frozen
class MetadataScan:
    """What one pass found: how many distributions there are, what they declare, and what is damaged; sorted."""

    distributions: int
    entry_points: tuple[EntryPointRecord, ...]
    damaged: tuple[DamagedMetadata, ...]


def scan_metadata(group: str = GROUP) -> MetadataScan:
    """Read the entry points of a group, by default those of decoders, of every distribution on `sys.path` once.

    The answer does not depend on the order of the path or of a folder.
    """
    _lists.cache_clear()
    count = 0
    records: set[EntryPointRecord] = set()
    damaged: set[DamagedMetadata] = set()
    for distribution in _distributions(damaged):
        count += 1
        metadata = _place(distribution)
        try:
            found = list(_entry_points(distribution, group))
            if _lacks_metadata(distribution):
                damaged.add(DamagedMetadata(metadata, "no METADATA" + (f"; it declares {', '.join(n for n, _ in found)}" if found else "")))
                continue
            if found:
                name, version = _identity(distribution)
                ours = _is_ours(name, metadata)
                records.update(EntryPointRecord(name, key, value, version, metadata, ours) for key, value in found)
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


def _entry_points(distribution: importlib.metadata.Distribution, group: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each entry point of the group."""
    text = distribution.read_text("entry_points.txt")
    if text is None:
        file = _file(distribution, "entry_points.txt")
        if file is not None and file.exists():
            raise OSError("entry_points.txt cannot be read")
        return
    if group not in text:
        return
    for entry_point in distribution.entry_points:
        if entry_point.group == group:
            yield entry_point.name, entry_point.value


def _lacks_metadata(distribution: importlib.metadata.Distribution) -> bool:
    """Whether a .dist-info folder is a leftover: it has no METADATA."""
    return str(getattr(distribution, "_path", "")).endswith(".dist-info") and not _file(distribution, "METADATA").exists()


def _file(distribution: importlib.metadata.Distribution, name: str) -> Any:
    """Return a path inside the metadata folder: the standard library has it, and gives it out under a private name only."""
    folder = getattr(distribution, "_path", None)
    return None if folder is None else folder / name


def _identity(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return name and version; a distribution of a foreign finder may have none."""
    metadata = distribution.metadata
    return (metadata["Name"] or UNKNOWN) if metadata else UNKNOWN, (metadata["Version"] or "") if metadata else ""


def owning_metadata(records: Sequence[EntryPointRecord], file: str) -> tuple[EntryPointRecord, tuple[str, ...]]:
    """Return the metadata that a plugin counts as declared by, and notes on what is odd.

    `records` are all metadata that declare one and the same plugin: a distribution may be seen as a wheel and as a
    source tree. `file` is where its module was imported from, or empty.
    """
    holding = [record for record in records if file and _holds(record, file)]
    chosen = max(holding or records, key=lambda record: (record.metadata.endswith(".dist-info"), record.version, record.metadata))
    notes = [f"declared by {other.metadata} too" + _version_note(other, chosen) for other in records if other != chosen]
    if file and not holding:
        notes.append(f"its module was imported from {file}, which is not a file of this distribution")
    return chosen, tuple(notes)


def _version_note(other: EntryPointRecord, chosen: EntryPointRecord) -> str:
    return f", as version {other.version}" if other.version != chosen.version else ""


def _is_ours(name: str, metadata: str) -> bool:
    """Whether a distribution is the one that this package is a file of; its name alone is anybody's to take."""
    return normalized(name) == SHIPPED_DISTRIBUTION and Path(metadata).is_dir() and _lists(metadata, tensorhub_contracts.__file__ or "")


def shadowing(record: EntryPointRecord) -> str:
    """Return why the module of an entry point is not the distribution's own, before it is imported; empty if it is."""
    package = record.value.partition(":")[0].strip().partition(".")[0]
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ""  # importing it says what is wrong
    file = spec.origin if spec is not None else None
    if not file or _lists(record.metadata, file):
        return ""
    return f"{package} is found at {file}, which is not a file of {record.distribution} {record.version}; take it off the import path"


def _holds(record: EntryPointRecord, file: str) -> bool:
    """Whether a file is one of the distribution's; of a foreign finder's, nothing is known."""
    return not Path(record.metadata).is_dir() or _lists(record.metadata, file)


@functools.cache
def _lists(metadata: str, file: str) -> bool:
    """Whether metadata lists a file in its RECORD, or is that of an editable install of a source tree that holds the file."""
    folder = Path(metadata)
    distribution = importlib.metadata.PathDistribution(folder)
    path = Path(file).resolve()
    try:
        direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
        if direct_url.get("dir_info", {}).get("editable"):
            return path.is_relative_to(Path(unquote(urlsplit(direct_url["url"]).path)).resolve())
        listed = distribution.files
        if folder.suffix == ".dist-info" and listed is not None:
            return any(Path(str(entry.locate())).resolve() == path for entry in listed if entry.name == Path(file).name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False  # damaged metadata proves nothing
    return path.is_relative_to(folder.parent.resolve())

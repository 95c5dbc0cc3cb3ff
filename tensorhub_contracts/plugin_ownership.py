"""Which metadata a plugin's module belongs to, and a note where it is not the one that declares the plugin."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tensorhub_contracts.plugin_scan import EntryPointRecord


def owner(records: Sequence[EntryPointRecord], file: str) -> tuple[EntryPointRecord, tuple[str, ...]]:
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


def _holds(record: EntryPointRecord, file: str) -> bool:
    """Whether a file is one of the distribution's: listed in its RECORD, or in the source tree of an editable install."""
    metadata = Path(record.metadata)
    if not metadata.is_dir():
        return True  # a foreign finder's, of which nothing is known
    distribution = importlib.metadata.PathDistribution(metadata)
    path = Path(file).resolve()
    try:
        direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
        if direct_url.get("dir_info", {}).get("editable"):
            return path.is_relative_to(Path(unquote(urlsplit(direct_url["url"]).path)).resolve())
        listed = distribution.files
        if metadata.suffix == ".dist-info" and listed is not None:
            return any(Path(str(entry.locate())).resolve() == path for entry in listed if entry.name == path.name)
    except (OSError, ValueError, KeyError, AttributeError):
        return False  # damaged metadata proves nothing
    return path.is_relative_to(metadata.parent.resolve())

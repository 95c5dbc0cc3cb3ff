"""The mutants that no test could see, because they mean the same, or that none is to see: listed with the reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mutants.edits import Mutant
from mutants.tree import TreeError

_KEYS = {"module", "original", "mutated", "reason"}


@dataclass(frozen=True)
class Equivalent:
    """A change that changes nothing: the lines that it touches, before and after, each with single spaces."""

    module: str
    original: str
    mutated: str
    reason: str


def read_equivalents(path: Path) -> list[Equivalent]:
    """Return the entries of a list, none if there is none; raises `TreeError` for one that is not complete."""
    if not path.is_file():
        return []
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    for entry in entries:
        if entry.keys() != _KEYS or not all(isinstance(value, str) and value for value in entry.values()):
            raise TreeError(f"{path}: an entry has {', '.join(sorted(_KEYS))}, all of them texts: {entry}")
    return [Equivalent(**entry) for entry in entries]


def is_listed(mutant: Mutant, listed: Iterable[Equivalent]) -> bool:
    """Whether a mutant is one of the list, wherever in its module its lines stand by now."""
    return any((each.module, each.original, each.mutated) == (mutant.module, mutant.before, mutant.after) for each in listed)


def stale(listed: Iterable[Equivalent], mutants: Iterable[Mutant]) -> list[Equivalent]:
    """Return the entries for modules that were looked at of which no mutant is: their line has changed since."""
    known = {(each.module, each.before, each.after) for each in mutants}
    modules = {module for module, _, _ in known}
    return [each for each in listed if each.module in modules and (each.module, each.original, each.mutated) not in known]

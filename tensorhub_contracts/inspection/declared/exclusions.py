"""Cross-checks the lists of modules that a configuration says were not converted with what the bytes show.

The lists never change how bytes are read. An entry is a literal, matched on whole dotted segments (`mlp.gate` is not
`mlp.gate_proj`), unless it is one of the two kinds of patterns that producers write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import attrs

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.declared.declaration_words import MODULE_LISTS
from tensorhub_contracts.readable import Readable

if TYPE_CHECKING:
    from tensorhub_contracts.inspection.remarks.exclusion_patterns import ModulePattern

#: The attribute of a whole model that holds its parts; files may name the parts without it, as Ministral-3's do.
_ROOT = "model"
_REPAIR = "Take the configuration from the export that wrote the weights. The list never changes how bytes are read."


@attrs.frozen(slots=False, repr=False)
class ExclusionReport(Readable):
    """What the cross-check found."""

    #: How many distinct entries there are, and how many match a module.
    entries: int = 0
    matched: int = 0
    #: Entries that cover a quantized unit, each with the first one.
    contradicted: tuple[tuple[str, str], ...] = ()
    #: Entries of several segments that match only when a prefix is put before them; one segment is a name at any depth.
    by_suffix: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    #: Unquantized matrices that no entry covers.
    unlisted: tuple[str, ...] = ()
    #: Patterns that could take unbounded time, or that hold a class of characters.
    not_evaluated: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


def check_exclusions(
    sources: tuple[DeclarationSource, ...], quantized: Iterable[str], unquantized: Iterable[str], matrices: AbstractSet[str]
) -> ExclusionReport:
    """Compare every module list of the sources with the tensors.

    `quantized` and `unquantized` are tensor names, `matrices` those of the unquantized ones that could have been quantized. A
    module is a tensor's name without its last segment. An entry covers a module if it is a run of its whole segments:
    `mlp.gate` covers `model.layers.0.mlp.gate` and not `model.layers.0.mlp.gate_proj`. A parameter that is neither weight nor bias has
    a name of its own, which an entry may give too, as MiniMax-M2's `e_score_correction_bias` does.
    """
    entries, violations = _entries(sources)
    literals = [entry for entry in entries if not entry.startswith("re:") and not _is_shell_pattern(entry)]
    patterns, not_evaluated, faults = _patterns(entries, sources)
    violations += faults
    if not entries:
        return ExclusionReport(violations=tuple(violations))
    wanted = {tuple(entry.strip(".").split(".")): entry for entry in literals if entry.strip(".")}
    rootless = {each[1:]: entry for each, entry in wanted.items() if len(each) > 1 and each[0] == _ROOT}
    lengths = sorted({len(each) for each in (*wanted, *rootless)})
    last_segments = {each[-1] for each in wanted}
    matched: set[str] = set()
    anchored: set[str] = set()
    contradicted: dict[str, str] = {}
    unlisted: list[str] = []
    for names, is_quantized in ((quantized, True), (unquantized, False)):
        for name in names:
            covering = _covering(name, wanted, rootless, lengths, last_segments, patterns, anchored)
            matched.update(covering)
            if is_quantized:
                for entry in covering:
                    contradicted.setdefault(entry, name)
            elif not covering and name in matrices:
                unlisted.append(name)
    return ExclusionReport(
        entries=len(entries),
        matched=len(matched),
        contradicted=tuple(contradicted.items()),
        by_suffix=tuple(entry for entry in literals if "." in entry and entry in matched and entry not in anchored),
        unmatched=tuple(entry for entry in entries if entry not in matched and entry not in not_evaluated),
        unlisted=tuple(unlisted),
        not_evaluated=tuple(not_evaluated),
        violations=tuple(violations),
    )


def _covering(
    name: str,
    wanted: Mapping[tuple[str, ...], str],
    rootless: Mapping[tuple[str, ...], str],
    lengths: list[int],
    last_segments: set[str],
    patterns: Sequence[ModulePattern],
    anchored: set[str],
) -> list[str]:
    """Return the entries that cover the module of a tensor; note in `anchored` those that do so from its beginning."""
    module = name.rpartition(".")[0] or name
    segments = tuple((module if name.endswith((".weight", ".bias")) else name).split("."))
    found = []
    for length in () if last_segments.isdisjoint(segments) else lengths:  # most modules end here
        for start in range(len(segments) - length + 1):
            part = segments[start : start + length]
            if part in wanted:
                found.append(wanted[part])
                if start == 0:
                    anchored.add(wanted[part])
            if start == 0 and part in rootless:
                found.append(rootless[part])
                anchored.add(rootless[part])
    found += [pattern.entry for pattern in patterns if pattern.covers(module)]
    return found


def _entries(sources: tuple[DeclarationSource, ...]) -> tuple[list[str], list[Violation]]:
    entries: dict[str, None] = {}
    violations = []
    for source in sources:
        for key in MODULE_LISTS:
            listed = source.content.get(key)
            if listed is None:
                continue
            if type(listed) is list and all(type(each) is str for each in listed):
                entries.update(dict.fromkeys(listed))
            else:
                where = f"{source.where}: {key}"
                violations.append(
                    Violation(
                        code="declaration-invalid",
                        object=where,
                        expected="a list of module names",
                        found=ascii(listed)[:80],
                        remedy=_REPAIR,
                    )
                )
    return list(entries), violations


def _patterns(entries: list[str], sources: tuple[DeclarationSource, ...]) -> tuple[list[ModulePattern], list[str], list[Violation]]:
    """Return the entries that are patterns, those that are not evaluated, and a violation for each that is not well formed."""
    if not any(map(_is_pattern, entries)):
        return [], [], []
    from tensorhub_contracts.inspection.remarks.exclusion_patterns import expression, shell_pattern  # few lists hold patterns

    patterns: list[ModulePattern] = []
    not_evaluated, violations = [], []
    for entry in entries:
        pattern: ModulePattern | None
        if _is_shell_pattern(entry):
            pattern = shell_pattern(entry)
        elif entry.startswith("re:"):
            try:
                pattern = expression(entry)
            except (re.error, RecursionError, OverflowError) as error:
                where = f"{sources[0].where}: {entry[:80]}"
                violations.append(
                    Violation(
                        code="declaration-invalid",
                        object=where,
                        expected="a regular expression after re:",
                        found=str(error),
                        remedy=_REPAIR,
                    )
                )
                continue
        else:
            continue
        if pattern is None:
            not_evaluated.append(entry)
        else:
            patterns.append(pattern)
    return patterns, not_evaluated, violations


def _is_shell_pattern(entry: str) -> bool:
    """Whether an entry holds a star, a question mark or a class of characters: none stands in the name of a module."""
    return not entry.startswith("re:") and not {"*", "?", "["}.isdisjoint(entry)


def _is_pattern(entry: str) -> bool:
    return entry.startswith("re:") or _is_shell_pattern(entry)

"""Cross-checks the lists of modules that a configuration says were not converted with what the bytes show.

The lists never change how bytes are read. An entry is a literal, matched on whole dotted segments: `mlp.gate` is not
`mlp.gate_proj`. The one documented exception is the prefix `re:` of compressed-tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import attrs

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.declared.declaration_words import MODULE_LISTS
from tensorhub_contracts.readable import Readable

_PATTERN_LENGTH_LIMIT = 1_000
_REPAIR = "Correct the entry in the configuration, or remove it: it never changes how bytes are read."


@attrs.frozen(repr=False)
class ExclusionReport(Readable):
    """What the cross-check found."""

    #: How many distinct entries there are, and how many match a module.
    entries: int = 0
    matched: int = 0
    #: Entries that cover a quantized unit, each with the first one.
    contradicted: tuple[tuple[str, str], ...] = ()
    #: Entries that match only when a prefix is put before them.
    by_suffix: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    #: Unquantized matrices that no entry covers.
    unlisted: tuple[str, ...] = ()
    #: Patterns that could take unbounded time.
    not_evaluated: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()


def check_exclusions(
    sources: tuple[DeclarationSource, ...], quantized: Iterable[str], unquantized: Iterable[str], matrices: AbstractSet[str]
) -> ExclusionReport:
    """Compare every module list of the sources with the tensors.

    `quantized` and `unquantized` are tensor names, `matrices` those of the unquantized ones that could have been quantized. A
    module is a tensor's name without its last segment. An entry covers a module if it is a run of its whole segments:
    `mlp.gate` covers `model.layers.0.mlp.gate` and not `model.layers.0.mlp.gate_proj`.
    """
    entries, violations = _entries(sources)
    literals = [entry for entry in entries if not entry.startswith("re:")]
    patterns, not_evaluated, faults = _patterns([entry for entry in entries if entry.startswith("re:")], sources)
    violations += faults
    if not entries:
        return ExclusionReport(violations=tuple(violations))
    wanted = {tuple(entry.strip(".").split(".")): entry for entry in literals if entry.strip(".")}
    lengths = sorted({len(each) for each in wanted})
    last_segments = {each[-1] for each in wanted}
    matched: set[str] = set()
    anchored: set[str] = set()
    contradicted: dict[str, str] = {}
    unlisted: list[str] = []
    for names, is_quantized in ((quantized, True), (unquantized, False)):
        for name in names:
            covering = _covering(name, wanted, lengths, last_segments, patterns, anchored)
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
        by_suffix=tuple(entry for entry in literals if entry in matched and entry not in anchored),
        unmatched=tuple(entry for entry in entries if entry not in matched and entry not in not_evaluated),
        unlisted=tuple(unlisted),
        not_evaluated=tuple(not_evaluated),
        violations=tuple(violations),
    )


def _covering(
    name: str,
    wanted: Mapping[tuple[str, ...], str],
    lengths: list[int],
    last_segments: set[str],
    patterns: list[tuple[str, list[re.Pattern[str]]]],
    anchored: set[str],
) -> list[str]:
    """Return the entries that cover the module of a tensor; note in `anchored` those that do so from its beginning."""
    module = name.rpartition(".")[0] or name
    segments = tuple(module.split("."))
    found = []
    for length in () if last_segments.isdisjoint(segments) else lengths:  # most modules end here
        for start in range(len(segments) - length + 1):
            entry = wanted.get(segments[start : start + length])
            if entry is not None:
                found.append(entry)
                if start == 0:
                    anchored.add(entry)
    found += [entry for entry, chunks in patterns if _matches(module, chunks)]
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


def _patterns(
    entries: list[str], sources: tuple[DeclarationSource, ...]
) -> tuple[list[tuple[str, list[re.Pattern[str]]]], list[str], list[Violation]]:
    """Turn `re:` entries into chunks between `.*`, each without quantifiers, so that matching takes linear time."""
    patterns, not_evaluated, violations = [], [], []
    for entry in entries:
        text = entry.removeprefix("re:")
        try:
            if len(text) > _PATTERN_LENGTH_LIMIT:
                raise re.error(f"longer than {_PATTERN_LENGTH_LIMIT} characters")
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            where = sources[0].where
            violations.append(
                Violation(
                    code="declaration-invalid",
                    object=f"{where}: {entry[:80]}",
                    expected="a regular expression after re:",
                    found=str(error),
                    remedy=_REPAIR,
                )
            )
            continue
        body = text.removesuffix("$") if not text.endswith("\\$") else text
        plain = body.removeprefix("^").replace("\\.", "").replace(".*", "")
        if re.fullmatch(r"[\w.\-]*", plain):
            chunks = [re.compile(chunk) for chunk in body.removeprefix("^").split(".*")]
            if body is not text:
                chunks[-1] = re.compile(chunks[-1].pattern + r"\Z")
            patterns.append((entry, chunks))
        else:
            not_evaluated.append(entry)
    return patterns, not_evaluated, violations


def _matches(module: str, chunks: list[re.Pattern[str]]) -> bool:
    """Match from the beginning, as `re.match` does; the leftmost place for each chunk is always a right one, and the
    last is tried at every place so that an end anchor holds."""
    first = chunks[0].match(module)
    if first is None:
        return False
    position = first.end()
    for chunk in chunks[1:]:
        found = chunk.search(module, position)
        if found is None:
            return False
        position = found.end()
    return True

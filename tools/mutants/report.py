"""What is printed of each mutant and of all of them, and what is written for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from mutants.workbench import Verdict

#: What becomes of a mutant that is a hole of the tests.
HOLES: Final = ("survived", "uncovered")


def line_of(verdict: Verdict) -> str:
    """Return the line of a mutant, or the lines of one that is a hole, with its text before and after."""
    mutant = verdict.mutant
    head = f"{verdict.status.upper() if verdict.status in HOLES else verdict.status:<10} {mutant.place}:{mutant.column} {mutant.kind}"
    if verdict.status in HOLES:
        ran = f"{verdict.tests:,} tests, {verdict.seconds:.1f} s"
        left = f", {verdict.left_out:,} tests left out" if verdict.left_out else ""
        why = "no test executes it" if verdict.status == "uncovered" else ran + left
        return f"{head}: {why}\n    - {mutant.before}\n    + {mutant.after}"
    by = f": by {verdict.by}" if verdict.by else ""
    return f"{head}: {_short(mutant.original)} -> {_short(mutant.mutated)}{by}"


def summary_of(verdicts: Sequence[Verdict]) -> str:
    """Return the counts, and the lines that no test executes."""
    counts = Counter(each.status for each in verdicts)
    killed = counts["killed"] + counts["timeout"]
    uncovered = sorted({(each.mutant.module, each.mutant.line) for each in verdicts if each.status == "uncovered"})
    lines = [
        f"{len(verdicts):,} mutants: {killed:,} killed ({counts['timeout']:,} by the limit of time), {counts['survived']:,} survived,"
        f" {counts['uncovered']:,} on {len(uncovered):,} lines that no test executes, {counts['equivalent']:,} listed as equivalent"
    ]
    if uncovered:
        lines.append("not executed: " + ", ".join(f"{module}:{line}" for module, line in uncovered))
    return "\n".join(lines)


def document_of(verdicts: Sequence[Verdict], seed: int) -> dict[str, Any]:
    """Return everything as JSON has it, in the order of the modules' text."""
    ordered = sorted(verdicts, key=lambda each: (each.mutant.module, each.mutant.line, each.mutant.column, each.mutant.mutated))
    return {
        "seed": seed,
        "counts": dict(sorted(Counter(each.status for each in verdicts).items())),
        "mutants": [
            {
                "module": each.mutant.module,
                "line": each.mutant.line,
                "column": each.mutant.column,
                "kind": each.mutant.kind,
                "original": each.mutant.original,
                "mutated": each.mutant.mutated,
                "before": each.mutant.before,
                "after": each.mutant.after,
                "status": each.status,
                "by": each.by,
                "tests": each.tests,
                "tests_left_out": each.left_out,
                "seconds": round(each.seconds, 2),
            }
            for each in ordered
        ],
    }


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."

"""What the whole run says at its end: how many generated trees were judged."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts that tests recorded under `generated trees`, added up over all of them and over all workers."""
    total: Counter[str] = Counter()
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        if getattr(report, "when", "") == "call":
            for name, counts in report.user_properties:
                if name == "generated trees":
                    total.update(counts)
    if total:
        terminalreporter.write_line("generated trees: " + ", ".join(f"{count:,} {name}" for name, count in total.items()))

"""Which tests run against a mutant, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


def chosen_tests(seconds: Mapping[str, float], limit: float) -> dict[str, float]:
    """Return the cheapest tests, one at least, that together take no longer than the limit, in the order in which they run.

    Files with little to run come first, and in a file the cheapest test: what a file's tests share is made once.
    """
    taken: dict[str, float] = {}
    together = 0.0
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        together += seconds[name]
        if taken and together > limit:
            break
        taken[name] = seconds[name]
    totals: dict[str, float] = defaultdict(float)
    for name in taken:
        totals[_file(name)] += taken[name]
    order = sorted(taken, key=lambda name: (totals[_file(name)], _file(name), taken[name]))
    return {name: taken[name] for name in order}


def _file(name: str) -> str:
    return name.partition("::")[0]

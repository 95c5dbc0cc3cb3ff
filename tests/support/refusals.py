"""What every test of a refusal asks for: well-formed violations, and exactly the ones that were expected."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.refusal_codes import explanations


def refused(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Violation, ...]:
    """Call something that must raise `Refusal`; return its violations, each of them proved fit to be shown to a user."""
    with pytest.raises(Refusal) as caught:
        call(*arguments, **keywords)
    return well_formed(caught.value.violations)


def refused_alone(code: str, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> Violation:
    """Call something that must be refused for exactly one reason; return that reason."""
    violations = refused(call, *arguments, **keywords)
    assert [violation.code for violation in violations] == [code], [str(violation) for violation in violations]
    return violations[0]


def findings(inspection: Inspection) -> set[tuple[str, str]]:
    """Return (code, object) of every violation of an inspection."""
    return {(violation.code, violation.object) for violation in well_formed(inspection.violations)}


def well_formed(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """Assert that each violation has a known code, says something in every field, and can be written as UTF-8 on one line."""
    listed = tuple(violations)
    assert listed, "a refusal without a reason"
    for violation in listed:
        assert violation.code in explanations(), violation.code
        for field in ("object", "expected", "found", "remedy"):
            text = getattr(violation, field)
            assert text.strip(), f"{violation.code}: nothing in {field}"
            text.encode()
        str(violation).encode()
    return listed


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of hanging: a pipe that nobody writes to would otherwise block the whole run."""

    def give_up(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"still waiting after {seconds} s")  # not TimeoutError: that is an OSError, which the reader rightly refuses

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

"""The record of a receipt: every check passed, failed or was not run, and the last is never taken for the first."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

State = Literal["passed", "failed", "not run"]

#: What the process exits with. NO_GPU: nothing failed, and no GPU has answered. INCOMPLETE: a GPU answered, nothing failed, and something
#: that must run did not.
PASSED, FAILED, NO_GPU, INCOMPLETE = 0, 1, 3, 4

#: What a check returns: a sentence, or a sentence and figures.
Outcome: TypeAlias = "str | tuple[str, Mapping[str, Any]]"


class CheckFailedError(Exception):
    """A check found a wrong answer; the message says which."""


class NotRunError(Exception):
    """A check cannot be made here; the message says why."""


@attrs.frozen
class Check:
    """`required`: the receipt is incomplete where this was not run. `detail` is a sentence, `seconds` what it took."""

    name: str
    state: State
    required: bool
    detail: str
    seconds: float
    figures: Mapping[str, Any] = attrs.field(factory=dict)


class Receipt:
    """Makes checks, one after the other, and keeps what each said. `deadline`: seconds from now after which none is begun."""

    def __init__(self, deadline: float, says: Callable[[str], None] = print) -> None:
        self.checks: list[Check] = []
        self.facts: dict[str, Any] = {}
        self._says = says
        self._begun = time.monotonic()
        self._deadline = deadline

    def check(self, name: str, make: Callable[[], Outcome], *, required: bool = True) -> bool:
        """Make a check and record it; return whether it passed. An error of any kind is a failure, `NotRunError` alone is none."""
        begun = time.monotonic()
        figures: Mapping[str, Any] = {}
        state: State
        try:
            if begun - self._begun > self._deadline:
                raise NotRunError(f"the time limit of {self._deadline:.0f} s was over")
            outcome = make()
            state, detail = "passed", outcome if isinstance(outcome, str) else outcome[0]
            figures = {} if isinstance(outcome, str) else outcome[1]
        except NotRunError as reason:
            state, detail = "not run", str(reason)
        except CheckFailedError as failure:
            state, detail = "failed", str(failure)
        except Exception as error:  # whatever goes wrong in a check is its failure, and the others are still made
            where = traceback.extract_tb(error.__traceback__)[-1]
            state, detail = "failed", f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
        self._record(Check(name, state, required, detail, round(time.monotonic() - begun, 3), figures))
        return state == "passed"

    def not_run(self, name: str, reason: str, *, required: bool = True) -> None:
        """Record a check that is not even tried."""
        self._record(Check(name, "not run", required, reason, 0.0))

    def _record(self, check: Check) -> None:
        self.checks.append(check)
        if check.state != "passed" or check.seconds > 1:
            self._says(f"{check.state:>7}  {check.name}: {check.detail}")

    def of(self, state: State) -> list[Check]:
        """Return the checks in a state."""
        return [check for check in self.checks if check.state == state]

    def exit_code(self, *, on_gpu: bool) -> int:
        """Return what the process exits with; on anything but a GPU it is never 0."""
        if self.of("failed"):
            return FAILED
        if not on_gpu:
            return NO_GPU
        missing = [check for check in self.of("not run") if check.required]
        return INCOMPLETE if missing or not self.checks else PASSED

    def as_document(self, *, on_gpu: bool) -> dict[str, Any]:
        """Return all of it for JSON."""
        verdict = {PASSED: "passed", FAILED: "failed", NO_GPU: "not run on a GPU", INCOMPLETE: "incomplete"}[self.exit_code(on_gpu=on_gpu)]
        counts = {state: len(self.of(state)) for state in ("passed", "failed", "not run")}
        return {"verdict": verdict, "counts": counts, **self.facts, "checks": [attrs.asdict(check) for check in self.checks]}


def require(right: bool, message: str) -> None:
    """Raise CheckFailedError unless something is so."""
    if not right:
        raise CheckFailedError(message)

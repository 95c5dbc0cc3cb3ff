"""A refusal as a hub answers it: the body of an RFC 9457 problem, status 422."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from tensorhub_contracts.documents import document_json
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.refusal_codes import explanations

#: The media type of the body.
MEDIA_TYPE: Final = "application/problem+json"


@attrs.frozen
class Problem:
    """The body of a problem (RFC 9457, sections 3.1 and 3.2); `type`, `title`, `status` and `detail` are the standard's."""

    type: str
    title: str
    status: Literal[422]
    detail: str
    #: That of the first violation.
    code: str
    #: All of them.
    violations: tuple[Violation, ...]
    nearest: str | None
    remedy: str
    #: Whether the same question may have another answer: something could not be read, and nothing was judged.
    retryable: bool


def problem_details(refusal: Refusal) -> Problem:
    """Return a refusal, of whatever kind, as the body of a problem."""
    first = refusal.violations[0]
    more = len(refusal.violations) - 1
    detail = f"{first.object}{f' of {first.component}' if first.component else ''}: expected {first.expected}; found {first.found}"
    return Problem(
        type=f"urn:tensorhub:refusal:{first.code}",
        title=explanations()[first.code].title,
        status=422,
        detail=detail + (f"; and {more} more" if more else ""),
        code=first.code,
        violations=refusal.violations,
        nearest=refusal.nearest,
        remedy=first.remedy,
        retryable=refusal.retryable,
    )


def problem_json(problem: Problem) -> str:
    """Return the body as JSON with two spaces of indentation, ended by a newline."""
    return document_json(problem)

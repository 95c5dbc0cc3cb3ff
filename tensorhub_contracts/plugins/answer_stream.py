"""Where the answer of a command goes: once a plugin was loaded, to a descriptor that nobody else writes to.

A plugin may print when it is imported, from a thread or at the end of the process. A report is one document, so that in the
process of a command standard output is standard error from the first plugin on, and the answer has what was standard output.
"""

from __future__ import annotations

import os
import sys
from typing import Final


class _Place:
    """Whether answers are to be kept apart, and the descriptor that they go to since they are."""

    ours = False
    wanted = False
    descriptor = -1


_PLACE: Final = _Place()


def is_ours() -> None:
    """Say that this process is there to run a command, and that nobody else uses its standard output."""
    _PLACE.ours = True


def keep_answers_apart() -> None:
    """Say that the command is one of our own, and that nothing but its answer belongs on standard output."""
    _PLACE.wanted = _PLACE.ours


def set_apart() -> bool:
    """Let standard output be standard error from now on, if answers are to be kept apart; say whether it is.

    It is not in a process that somebody else runs, nor where there are no such descriptors.
    """
    if _PLACE.wanted and _PLACE.descriptor < 0:
        try:
            sys.stdout.flush()
            kept = os.dup(1)
        except (OSError, ValueError, AttributeError):
            return False
        try:
            os.dup2(2, 1)
        except OSError:
            os.close(kept)
            return False
        _PLACE.descriptor = kept
    return _PLACE.descriptor >= 0


def answer_descriptor() -> int:
    """Return the descriptor that answers go to, or -1 where that is whatever `sys.stdout` is."""
    return _PLACE.descriptor

"""Environment variables, by their names; one that is set by the name that it had is not read, and not silently."""

from __future__ import annotations

import functools
import os
import warnings

#: What the names began with: others own such variables, and some of them stop at one that they do not know.
_OLD = "TENSORHUB"
_NEW = "TENSOR_CONTRACTS"


def variable(name: str) -> str:
    """Return the value of an environment variable, or nothing."""
    _warn_of_old_name(name)
    return os.environ.get(name, "")


@functools.cache
def _warn_of_old_name(name: str) -> None:
    """Say once on standard error that a variable is set by the name that it had."""
    old = name.replace(_NEW, _OLD)
    if old in os.environ:
        warnings.warn(f"{old} is set, and not read: the variable is {name}", stacklevel=3)

"""Makes a thread compute as IEEE 754 says: round to nearest even, and keep subnormal numbers.

A processor can be told to round otherwise and to take subnormal numbers for zero. It is told so thread by thread, and a new thread
does as the one that starts it. Whoever sets this for speed, in the same process, changes every number that is computed there.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tensorhub_contracts.errors import FaultError

_SMALLEST_NORMAL: Final = sys.float_info.min
#: From its bits: a thread that flushes also reads the literal as zero.
(_SMALLEST,) = struct.unpack("<d", bytes([1, 0, 0, 0, 0, 0, 0, 0]))
_HALF_AN_ULP: Final = 2.0**-53

#: More than any C library's `fenv_t` has, which is a few words.
_ENVIRONMENT_BYTES: Final = 512


def is_exact() -> bool:
    """Return whether this thread computes as IEEE 754 says: found out by computing, so it holds whoever set the mode, and how."""
    keeps_results = _SMALLEST_NORMAL * 0.5 > 0.0
    keeps_operands = _SMALLEST * 2.0**60 > 0.0
    one = 1.0 + 0.0 * _SMALLEST_NORMAL  # computed, as everything else here: a compiler's constants are rounded elsewhere
    to_nearest = one + _HALF_AN_ULP == 1.0 and one + 1.5 * _HALF_AN_ULP > 1.0
    return keeps_results and keeps_operands and to_nearest


def become_exact() -> None:
    """Make this thread exact for good, and with it the threads that it starts: for threads of our own."""
    if not is_exact():
        _make_exact()


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Make this thread exact, and leave it as it was, whatever is raised.

    Threads that are started meanwhile are exact; those that there are already stay as they are. Not to be held while a generator
    yields: the mode would be that of the caller's own arithmetic. Raises `FaultError` where the mode cannot be changed.
    """
    if is_exact():
        yield
        return
    environment = _make_exact()
    try:
        yield
    finally:
        _library().fesetenv(environment)


def _make_exact() -> Any:
    """Make this thread exact, and return the environment that it had before, for `fesetenv`."""
    import ctypes  # only where it is needed, which is hardly ever

    found = "this thread rounds otherwise than to nearest even, or takes subnormal numbers for zero (torch.set_flush_denormal)"
    if sys.platform != "linux":
        raise FaultError([f"{found}, and how to change that is known on Linux alone; change it before you call"])
    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    library = _library()
    default = ctypes.c_void_p(-1)  # FE_DFL_ENV, in glibc and musl on every processor
    if library.fegetenv(environment) or library.fesetenv(default) or not is_exact():
        library.fesetenv(environment)
        raise FaultError([f"{found}, and the C library does not change it; change it before you call"])
    return environment


def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None)

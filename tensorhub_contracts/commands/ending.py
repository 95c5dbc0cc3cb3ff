"""Ends the process of the console script: nothing is lost, and a process that ran our own code alone ends at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from types import FrameType
from typing import NoReturn

from tensorhub_contracts.commands import EXIT_FAULT, EXIT_UNREAD

#: The module that imports what plugins bring: where it was not loaded, no code of a plugin ran.
_LOADER = "tensorhub_contracts.plugins.loader"


def end_process(code: int, caller: FrameType | None) -> NoReturn:
    """End the process with `code`, or, if that is 0 and the output cannot be written, with the code that says so.

    Taking two hundred modules apart takes longer than proving a contract, so the process ends without. What is registered
    for its end runs before. It ends as any Python process does (`SystemExit`) where somebody would lose by haste: a
    plugin's threads and open files, and a profiler or a tracer that runs the script and waits for its return. `caller`
    is the frame that the console script was called from: below a script there is none.
    """
    if _LOADER in sys.modules or caller is None or caller.f_back is not None:
        sys.exit(_flushed(code))
    with contextlib.suppress(Exception):  # the interpreter, too, goes on after a handler that fails
        atexit._run_exitfuncs()
    os._exit(_flushed(code))


def _flushed(code: int) -> int:
    """Write what is buffered, drop what cannot be written, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # as where the process was started with it closed
                stream.flush()
        except OSError as error:
            # Else the interpreter would fail at the same again, and exit with a code of its own.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if code == 0:
                code = EXIT_UNREAD if isinstance(error, BrokenPipeError) else EXIT_FAULT
                if code == EXIT_FAULT and stream is sys.stdout:
                    with contextlib.suppress(OSError):
                        os.write(2, f"Error: standard output cannot be written: {error.strerror}\n".encode())
    return code

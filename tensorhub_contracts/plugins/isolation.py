"""Runs what a plugin brings so that whatever it does stays with it: exceptions, SystemExit, and what it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, Generic, TypeVar

import attrs

from tensorhub_contracts.plugins.answer_stream import set_apart

T = TypeVar("T")


class BrokenError(Exception):
    """What a plugin does wrong, in words."""


@attrs.frozen
class Outcome(Generic[T]):
    """What a plugin's code gave, or why it is broken, with the traceback if there is one."""

    value: T | None = None
    fault: str = ""
    traceback: str = ""


#: After so many seconds, a plugin that is still being imported or asked is named: a process that hangs says why.
PATIENCE: Final = 10.0


def isolated(run: Callable[[], T], *, title: str, trusted: bool) -> Outcome[T]:
    """Run a plugin's code; `title` is what messages call the plugin.

    Never raises for anything that the plugin does, SystemExit and KeyboardInterrupt included, also where it does so when
    the exception is written out; a Ctrl-C of the user goes through. Unless it is `trusted`, what it prints, and what a
    process prints that it starts, goes to standard error.
    """
    with _interrupts_told_apart() as interrupted, _named_if_slow(title):
        try:
            with contextlib.nullcontext() if trusted else _output_to_stderr():
                return Outcome(run())
        except BaseException as error:
            if interrupted():
                raise
            return _failed(error, interrupted)


def _failed(error: BaseException, interrupted: Callable[[], bool]) -> Outcome[T]:
    """Write an exception out: its class, its text and its traceback are the plugin's code, which may fail at that too."""
    try:
        if type(error) is BrokenError:
            return Outcome(fault=f"{error} ".strip())
        return Outcome(fault=_in_a_line(error), traceback="".join(traceback.format_exception(error)))
    except BaseException:
        if interrupted():
            raise
        return Outcome(fault="an exception that cannot be written out")


@contextlib.contextmanager
def _named_if_slow(title: str) -> Iterator[None]:
    """Name a plugin on standard error, once, if it takes long."""

    def name() -> None:
        said = f"plugin {title} has been importing for {PATIENCE:g} s; block it with TENSOR_CONTRACTS_PLUGINS=-{title.partition(' ')[0]}\n"
        with contextlib.suppress(OSError):
            os.write(2, said.encode("utf-8", "backslashreplace"))

    timer = threading.Timer(PATIENCE, name)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _interrupts_told_apart() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether the user pressed Ctrl-C: a plugin may raise KeyboardInterrupt by itself."""
    pressed: list[bool] = []
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield lambda: False  # signals are handled in the main thread alone
        return

    def handle(number: int, frame: FrameType | None) -> None:
        pressed.append(True)
        previous(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Send what is printed to standard error: `print`, writes to descriptor 1, and processes that inherit it.

    For the while, or in the process of a command for good: see `set_apart`.
    """
    if set_apart():
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):
        kept = -1  # no such descriptors, or no such stream: nothing that could be mixed
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)


def _in_a_line(error: BaseException) -> str:
    """Write an error with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    try:
        text = str(error).strip().replace("\n", "; ")
    except Exception:
        text = "its text cannot be had"
    return f"{type(error).__name__}{': ' + text if text else ''}{where}"

"""A thread is made exact whichever mode it is in, and gets back the very mode that it had."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tensorhub_contracts.errors import FaultError
from tensorhub_contracts.exact_arithmetic import become_exact, exact_arithmetic, is_exact

LIBRARY = ctypes.CDLL(None)

#: The rounding modes of <fenv.h> on x86-64: downward, upward, toward zero.
ROUNDINGS = (0x400, 0x800, 0xC00)

MODES: dict[str, Callable[[], Any]] = {
    "flushes": lambda: torch.set_flush_denormal(True),
    **{f"rounds {rounding:#x}": lambda rounding=rounding: LIBRARY.fesetround(rounding) for rounding in ROUNDINGS},
}


def environment() -> bytes:
    """Return the floating-point environment of this thread without its exception flags, which computing sets."""
    held = ctypes.create_string_buffer(64)
    LIBRARY.feclearexcept(0x3D)
    assert LIBRARY.fegetenv(held) == 0
    return held.raw


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    assert found, "the thread raised"
    return found[0]


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="the rounding modes' numbers are those of x86-64")
@pytest.mark.parametrize("mode", MODES)
def test_a_thread_is_exact_inside_and_as_it_was_afterwards(mode: str) -> None:
    def work() -> list[bool]:
        assert is_exact(), "the control"
        MODES[mode]()
        before = environment()
        found = [is_exact()]
        with exact_arithmetic():
            found += [is_exact(), in_a_thread(is_exact)]
        found += [is_exact(), environment() == before]
        try:
            with exact_arithmetic():
                raise KeyError
        except KeyError:
            found += [is_exact(), environment() == before]
        become_exact()
        return [*found, is_exact()]

    assert in_a_thread(work) == [False, True, True, False, True, False, True, True]


def test_a_thread_that_cannot_be_changed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "elsewhere")

    def work() -> str:
        with exact_arithmetic():
            pass  # the control: there is nothing to change
        torch.set_flush_denormal(True)
        try:
            with exact_arithmetic():
                return "entered"
        except FaultError as fault:
            return str(fault)

    assert "set_flush_denormal" in in_a_thread(work)

"""The record of a receipt: what is not run never passes, and an error of any kind is a failure."""

from __future__ import annotations

from pathlib import Path

from tests.kernels.receipt import checks
from tests.kernels.receipt.checks import Receipt, require


def _silent(deadline: float = 1e9) -> Receipt:
    return Receipt(deadline, says=lambda line: None)


def test_what_is_not_run_never_passes() -> None:
    receipt = _silent()
    assert receipt.check("right", lambda: "so it is")
    assert receipt.exit_code(on_gpu=True) == checks.PASSED
    assert receipt.exit_code(on_gpu=False) == checks.NO_GPU
    receipt.not_run("may be left out", "no such device", required=False)
    assert receipt.exit_code(on_gpu=True) == checks.PASSED
    receipt.not_run("must run", "no such device")
    assert receipt.exit_code(on_gpu=True) == checks.INCOMPLETE
    assert not receipt.check("wrong", lambda: require(False, "it is wrong") or "")
    assert receipt.exit_code(on_gpu=True) == checks.FAILED
    assert receipt.exit_code(on_gpu=False) == checks.FAILED
    assert _silent().exit_code(on_gpu=True) == checks.INCOMPLETE, "a receipt of nothing"


def test_any_error_is_a_failure_and_says_where() -> None:
    receipt = _silent()
    receipt.check("broken", lambda: str(1 // 0))
    assert receipt.checks[0].state == "failed"
    assert "ZeroDivisionError" in receipt.checks[0].detail
    assert Path(__file__).name in receipt.checks[0].detail


def test_after_the_deadline_checks_are_not_run() -> None:
    receipt = _silent(deadline=-1.0)
    assert not receipt.check("late", lambda: "never asked")
    assert receipt.checks[0].state == "not run"
    assert receipt.exit_code(on_gpu=True) == checks.INCOMPLETE

"""The errors of kernels: not available here, with the reason, and called with wrong operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

#: Why a kernel is not available: the device's compute capability (floor), the compiler, the driver, the alignment that the
#: kernel needs, a Python package that is not installed, or TENSOR_CONTRACTS_DISABLE_JIT (disabled).
DecidedBy = Literal["floor", "nvrtc", "driver", "alignment", "package", "disabled"]


class KernelUnavailable(Exception):
    """A kernel cannot run here, and the same work may be done elsewhere: no other error means that.

    `decided_by` is the code of the reason; `object` names the kernel, device, package or library; `expected`, `found` and
    `remedy` are sentences for a person.
    """

    def __init__(self, decided_by: DecidedBy, subject: str, expected: str, found: str, remedy: str) -> None:
        self.decided_by = decided_by
        self.object = subject
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(f"{subject}: expected {expected}, found {found} (decided by: {decided_by}). {remedy}")


class KernelBuildError(KernelUnavailable):
    """NVRTC did not compile a kernel: carries the options and the compiler's log."""

    def __init__(self, subject: str, expected: str, found: str, remedy: str, *, options: Sequence[str], log: str) -> None:
        super().__init__("nvrtc", subject, expected, found, remedy)
        self.options = tuple(options)
        self.log = log
        self.args = (f"{self.args[0]}\noptions: {' '.join(self.options)}\nlog:\n{log}",)


class KernelArgumentError(ValueError):
    """The operands of a call are wrong for every kernel: dtype, shape, strides or device. `violations` has a sentence for each."""

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))

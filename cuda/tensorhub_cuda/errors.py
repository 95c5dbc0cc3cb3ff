"""Why a kernel does not run here, said so that a caller can move work elsewhere, or report it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

#: Who decided that a kernel is not available: the kernel's least compute capability, the compiler, the driver, the
#: alignment that a kernel needs, a Python package that is not installed, or the environment's own word.
DecidedBy = Literal["floor", "nvrtc", "driver", "alignment", "package", "disabled"]


class KernelUnavailable(Exception):
    """Not supported here: the one kind of error that lets a caller move work elsewhere.

    `object` names the kernel, device or file that it is about; `expected`, `found` and `remedy` are for a person.
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
    """A call that no kernel could serve: a dtype, a shape or a device is wrong. Lists everything that is."""

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))

"""Reads what ptxas says of each kernel in NVRTC's log (--ptxas-options=-v): registers, stack frame, spills."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_REST_OF_KERNEL: Final = r"(?:(?!Compiling entry function).)*?"  # never into what is said of the next one
_KERNEL: Final = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for '\w+'"
    + _REST_OF_KERNEL
    + r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
    + _REST_OF_KERNEL
    + r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


class KernelResources(msgspec.Struct, frozen=True):
    """What one thread of a kernel holds: registers, and bytes of local memory by reason. All bytes are 0 in a good kernel."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def kernel_resources(log: str) -> dict[str, KernelResources]:
    """Return the resources of each kernel that the log tells of, by the kernel's symbol."""
    return {
        found["kernel"]: KernelResources(int(found["registers"]), int(found["stack"]), int(found["stores"]), int(found["loads"]))
        for found in _KERNEL.finditer(log)
    }

"""Handles: `producer.format@major`, lower case, hyphens inside a segment, matched byte for byte."""

from __future__ import annotations

import re

import msgspec

from tensorhub_contracts.errors import Refusal, Violation

#: A producer or a format.
SEGMENT = "[a-z0-9]+(?:-[a-z0-9]+)*"
HANDLE_PATTERN = rf"^{SEGMENT}\.{SEGMENT}@[1-9][0-9]{{0,8}}$"
_HANDLE = re.compile(rf"({SEGMENT})\.({SEGMENT})@([1-9][0-9]{{0,8}})\Z", re.ASCII)


class Handle(msgspec.Struct, frozen=True):
    """The parts of a handle; `str()` gives it back byte for byte."""

    producer: str
    format: str
    major: int

    @property
    def name(self) -> str:
        """The handle without its major: what all versions of a layout share."""
        return f"{self.producer}.{self.format}"

    def __str__(self) -> str:
        return f"{self.name}@{self.major}"


def parse_handle(text: str) -> Handle:
    """Read a handle, or raise `Refusal` (`handle-malformed`). Nothing is folded: case and hyphens count."""
    matched = _HANDLE.match(text)
    if matched is None:
        raise Refusal(
            [
                Violation(
                    code="handle-malformed",
                    object=text,
                    expected="producer.format@major in lower case, with hyphens only inside a segment",
                    found=repr(text),
                    remedy="Write the handle as `tensorhub contracts` prints it, for example hf.fp8-blockwise@1.",
                )
            ]
        )
    return Handle(matched[1], matched[2], int(matched[3]))

"""Lane names: `<weights>-<activation>[-<scale>]` is a body, `<body>+<execution>` a lane, and the weights alone a family."""

from __future__ import annotations

import re
from typing import Final

import attrs

from tensorhub_contracts.documents import SEGMENT
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.readable import Readable

# Patterns are compiled when they are first used, and kept by `re`: most commands read no name.
_HANDLE = rf"({SEGMENT})\.({SEGMENT})@([1-9][0-9]{{0,8}})\Z"


@attrs.frozen(slots=False, repr=False)
class Handle(Readable):
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
    matched = re.match(_HANDLE, text, re.ASCII)
    if matched is None:
        raise Refusal(
            [
                Violation(
                    code="handle-malformed",
                    object=text,
                    expected="producer.format@major in lower case, with hyphens only inside a segment",
                    found=repr(text),
                )
            ]
        )
    return Handle(matched[1], matched[2], int(matched[3]))


EXECUTIONS: Final = ("eager", "compiled")

_WORD = "[a-z0-9]+"
_FAMILY = rf"{_WORD}(?:-{_WORD})*?"
_BODY = rf"({_FAMILY})-(w[1-9][0-9]?a[1-9][0-9]?)(?:-({_WORD}))?\Z"

#: No word of a family may look like an activation: `fp8-w8a16-very-dynamic` is a slip of a body, and no family.
_FAMILY_WORD = rf"(?!w[0-9]+a[0-9]+(?:-|\Z)){_WORD}"
_FAMILY_ALONE = rf"{_FAMILY_WORD}(?:-{_FAMILY_WORD})*\Z"


@attrs.frozen(slots=False, repr=False)
class LaneName(Readable):
    """The parts of a lane, of a body (without `execution`) or of a family (with `family` alone); `str()` gives it back.

    `fp8-w8a8-dynamic+eager` has family `fp8`, activation `w8a8`, scale `dynamic` and execution `eager`.
    """

    family: str
    activation: str = ""
    scale: str = ""
    execution: str = ""

    @property
    def body(self) -> str:
        """What a decoder declares: the name without its execution; empty for a family."""
        return "-".join(filter(None, (self.family, self.activation, self.scale))) if self.activation else ""

    @property
    def activation_bits(self) -> int:
        """The bits of activations: 16 of `fp8-w8a16`. Raises ValueError for a family, which does not say."""
        return int(self.activation.rpartition("a")[2])

    @property
    def bit_family(self) -> str:
        """The family of all weights of as many bits: `8bit` of `fp8-w8a16`; empty for a family, which does not say."""
        return f"{self.activation[1:].partition('a')[0]}bit" if self.activation else ""

    def covers(self, lane: LaneName) -> bool:
        """Whether a full lane is the one asked for: a family covers its bodies, as `8bit` does those of 8 bits, a body its executions."""
        if not self.activation:
            return self.family in (lane.family, lane.bit_family)
        return self.body == lane.body and self.execution in ("", lane.execution)

    def __str__(self) -> str:
        return (self.body or self.family) + (f"+{self.execution}" if self.execution else "")


def parse_lane(text: str) -> LaneName:
    """Read a family (`fp8`, `8bit`), a body (`fp8-w8a16`) or a lane (`fp8-w8a16+eager`).

    Nothing is folded or trimmed. Raises `Refusal` (`lane-malformed`).
    """
    name, plus, execution = text.partition("+")
    body = re.match(_BODY, name, re.ASCII)
    if body is not None and (execution in EXECUTIONS if plus else True):
        return LaneName(body[1], body[2], body[3] or "", execution)
    if not plus and re.match(_FAMILY_ALONE, name, re.ASCII):
        return LaneName(name)
    expected = "a family such as fp8, or 8bit for all weights of 8 bits, a body such as fp8-w8a16, or a lane such as fp8-w8a16+eager"
    raise Refusal([Violation(code="lane-malformed", object=text, expected=expected, found=repr(text))])

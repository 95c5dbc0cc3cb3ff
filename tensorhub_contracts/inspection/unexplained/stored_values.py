"""A bounded look at FP8 values that nothing scales and nothing declares: headers cannot tell them from codes that lost their scales.

Weights as they are lie far below 1. Codes that a scale was taken out of fill the range: whoever quantizes puts the largest value of
a tensor, a row or a block at 448, the largest code of E4M3.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import attrs

from tensorhub_contracts.checkpoints.stored_bytes import ReadTensor
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.readable import Readable

#: How many tensors are looked at, in how many places, and how many bytes at each: 288 KiB in all.
_TENSORS: Final = 12
_PIECES: Final = 3
_PIECE: Final = 8192

#: Values of E4M3 codes: the typical size of weights as they are, and the largest of them; the same of codes without their scale.
_RAW_TYPICAL, _RAW_LARGEST = 1.0, 32.0
_LOST_TYPICAL, _LOST_LARGEST = 2.0, 224.0

_MAGNITUDE = bytes(code & 0x7F for code in range(256))
_NAN: Final = 0x7F


@attrs.frozen(slots=False, repr=False)
class LookedAt(Readable):
    """What the values of one tensor look like: the median of their magnitudes and the largest, zeros and NaN left out."""

    name: str
    median: float
    largest: float

    @property
    def verdict(self) -> Literal["as they are", "without their scale", "undecided", "zero"]:
        """What the values are taken for."""
        if not self.largest:
            return "zero"
        if self.median <= _RAW_TYPICAL and self.largest <= _RAW_LARGEST:
            return "as they are"
        return "without their scale" if self.median >= _LOST_TYPICAL and self.largest >= _LOST_LARGEST else "undecided"


def judge_values(inspection: Inspection, read: ReadTensor, *, asked: bool) -> Inspection:
    """Look at values of a checkpoint that was proved to be in a contract without scales; return it with what they say.

    It is refused (`scale-lost`) if at least half of the tensors looked at have codes without their scale, and, unless it was
    `asked` for this contract by name, if it cannot be said (`scale-undecided`). What could not be read refuses it as well.
    """
    names = _sample(inspection)
    try:
        looked = [_look(name, read, math.prod(inspection.layouts[name].weight_shape)) for name in names]
    except Refusal as refusal:
        return attrs.evolve(inspection, contract=None, digest=None, proved=(), violations=refusal.violations)
    judged = attrs.evolve(inspection, values_read=tuple(names))
    violation = _violation(inspection, looked, asked=asked)
    if violation is not None:
        return attrs.evolve(judged, contract=None, digest=None, proved=(), violations=(violation,))
    return attrs.evolve(judged, proved=(*inspection.proved, f"values: {_in_words(looked)}"))


def _sample(inspection: Inspection) -> list[str]:
    """Return the tensors to look at: matrices, if there are any, spread evenly over the checkpoint."""
    assert inspection.checkpoint is not None  # it was proved
    layouts = inspection.layouts
    names = [name for name in inspection.checkpoint.shard_of if name in layouts]
    matrices = [name for name in names if len(layouts[name].weight_shape) > 1] or names
    count = min(_TENSORS, len(matrices))
    return [matrices[place * len(matrices) // count] for place in range(count)]


def _look(name: str, read: ReadTensor, size: int) -> LookedAt:
    """Read the beginning, the middle and the end of a tensor, or all of a small one."""
    if size <= _PIECES * _PIECE:
        data = read(name, 0, size)
    else:
        data = b"".join(read(name, (size - _PIECE) * place // (_PIECES - 1), _PIECE) for place in range(_PIECES))
    codes = Counter(data.translate(_MAGNITUDE))
    del codes[0], codes[_NAN]
    return LookedAt(name, _median(codes), _value(max(codes)) if codes else 0.0)


def _median(codes: Counter[int]) -> float:
    left = sum(codes.values()) // 2
    for code in sorted(codes):
        left -= codes[code]
        if left < 0:
            return _value(code)
    return 0.0


def _value(code: int) -> float:
    """Return the value of a magnitude of E4M3: 4 bits of exponent with a bias of 7, 3 bits of mantissa (OCP, FP8 formats)."""
    exponent, mantissa = code >> 3, code & 7
    return math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9)


def _violation(inspection: Inspection, looked: Sequence[LookedAt], *, asked: bool) -> Violation | None:
    verdicts = Counter(each.verdict for each in looked if each.verdict != "zero")
    count, lost = verdicts.total(), verdicts["without their scale"]
    facts = {"object": inspection.path, "expected": "values as they are: most of them below 1", "found": _in_words(looked)}
    if count and 2 * lost >= count:
        return Violation(code="scale-lost", **facts)
    if asked or not count or (2 * verdicts["as they are"] > count and lost <= 1):  # one table of large values makes no checkpoint doubtful
        return None
    return Violation(
        code="scale-undecided",
        remedy=f"If its producer scaled nothing, ask for it by name: --contract {inspection.contract}.",
        **facts,
    )


def _in_words(looked: Sequence[LookedAt]) -> str:
    verdicts = Counter(each.verdict for each in looked)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    shown = ", ".join(f"{each.name} (median {each.median:g}, largest {each.largest:g})" for each in looked[:3])
    more = f" and {len(looked) - 3} more" if len(looked) > 3 else ""
    return f"looked at {len(looked)} of its FP8 tensors, up to {_PIECES * _PIECE:,} bytes of each: {counts}: {shown}{more}"

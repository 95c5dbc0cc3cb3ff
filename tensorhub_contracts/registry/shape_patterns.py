"""Shapes as the registry writes them: symbols, ceiling divisions, paddings, products and numbers.

`"out"` binds or compares a dimension, `"in/128"` is ceil(in / 128), `"in/16^4"` is that rounded up to a multiple of 4,
`"out^128*in/16^4"` is a product of two such sizes, `16` is itself. The primary tensor of a form binds its symbols; there
`"in/2"` binds `in` to twice the dimension, because one stored byte holds two elements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import attrs

from tensorhub_contracts.readable import Readable

_SIZE = re.compile(r"([a-z][a-z_]*)(?:/([1-9][0-9]*))?(?:\^([1-9][0-9]*))?\Z")


@attrs.frozen(slots=False, repr=False)
class Dimension(Readable):
    """One dimension of a shape: a symbol divided by `divisor` and rounded up, or a fixed number (symbol is empty).

    The quotient is rounded up to a multiple of `multiple`, and multiplied with what `times` stands for.
    """

    symbol: str
    divisor: int
    number: int
    multiple: int = 1
    times: Dimension | None = None

    @property
    def binds(self) -> bool:
        """Whether a size tells what the symbol stands for: not if it was rounded or multiplied."""
        return self.multiple == 1 and self.times is None

    def size(self, symbols: Mapping[str, int]) -> int | None:
        """Return how large the dimension is, or None if a symbol stands for nothing."""
        if not self.symbol:
            return self.number
        if self.symbol not in symbols:
            return None
        size = -(-symbols[self.symbol] // self.divisor)
        size = -(-size // self.multiple) * self.multiple
        other = self.times.size(symbols) if self.times is not None else 1
        return None if other is None else size * other

    def __str__(self) -> str:
        if not self.symbol:
            return str(self.number)
        text = self.symbol + (f"/{self.divisor}" if self.divisor > 1 else "") + (f"^{self.multiple}" if self.multiple > 1 else "")
        return text if self.times is None else f"{text}*{self.times}"


def parse_dimension(text: str | int) -> Dimension:
    """Read one dimension; raise ValueError if it is neither made of symbols as the registry writes them nor a positive number."""
    if type(text) is int and text > 0:
        return Dimension("", 1, text)
    first, product, rest = text.partition("*") if type(text) is str else ("", "", "")
    matched = _SIZE.match(first)
    if matched is None:
        raise ValueError(f"a dimension is a symbol, symbol/number, either ^number, a product of these or a positive number, not {text!r}")
    return Dimension(matched[1], int(matched[2] or 1), 0, int(matched[3] or 1), parse_dimension(rest) if product else None)


@functools.cache
def parse_shape(shape: tuple[str | int, ...]) -> tuple[Dimension, ...]:
    """Read a shape as the registry writes it; raise ValueError if a dimension is not well formed."""
    return tuple(map(parse_dimension, shape))


def bind(pattern: tuple[Dimension, ...], shape: tuple[int, ...]) -> dict[str, int] | None:
    """Return the value of each symbol if `shape` has the pattern of a primary tensor, else None.

    Every dimension must be at least 1: an empty tensor is in no layout.
    """
    if len(pattern) != len(shape):
        return None
    symbols: dict[str, int] = {}
    for dimension, size in zip(pattern, shape, strict=True):
        if size < 1:
            return None
        if not dimension.symbol:
            if size != dimension.number:
                return None
        elif symbols.setdefault(dimension.symbol, size * dimension.divisor) != size * dimension.divisor:
            return None
    return symbols


def expand(pattern: tuple[Dimension, ...], symbols: Mapping[str, int], found: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that the pattern asks for, given the symbols of the primary tensor.

    A symbol that the primary tensor does not bind stands for any size and takes the one found at the same place.
    """
    shape = []
    for place, dimension in enumerate(pattern):
        size = dimension.size(symbols)
        shape.append(size if size is not None else max(found[place], 1) if place < len(found) else 1)
    return tuple(shape)


def write_pattern(pattern: tuple[Dimension, ...]) -> str:
    """Write a shape pattern as the registry does: `[out/128, in/128]`."""
    return "[" + ", ".join(map(str, pattern)) + "]"

"""Shapes as the registry writes them: symbols, ceiling divisions and numbers.

`"out"` binds or compares a dimension, `"in/128"` is ceil(in / 128), `16` is itself. The primary tensor of a form binds
its symbols; there `"in/2"` binds `in` to twice the dimension, because one stored byte holds two elements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import attrs

from tensorhub_contracts.readable import Readable

_DIMENSION = re.compile(r"([a-z][a-z_]*)(?:/([1-9][0-9]*))?\Z")


@attrs.frozen(repr=False)
class Dimension(Readable):
    """One dimension of a shape: a symbol divided by `divisor` and rounded up, or a fixed number (symbol is empty)."""

    symbol: str
    divisor: int
    number: int

    def __str__(self) -> str:
        if not self.symbol:
            return str(self.number)
        return self.symbol if self.divisor == 1 else f"{self.symbol}/{self.divisor}"


def parse_dimension(text: str | int) -> Dimension:
    """Read one dimension; raise ValueError if it is neither a symbol, a division nor a positive number."""
    if type(text) is int and text > 0:
        return Dimension("", 1, text)
    matched = _DIMENSION.match(text) if type(text) is str else None
    if matched is None:
        raise ValueError(f"a dimension is a symbol, symbol/number or a positive number, not {text!r}")
    return Dimension(matched[1], int(matched[2] or 1), 0)


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
        if not dimension.symbol:
            shape.append(dimension.number)
        elif dimension.symbol in symbols:
            shape.append(-(-symbols[dimension.symbol] // dimension.divisor))
        else:
            shape.append(found[place] if place < len(found) else 1)
    return tuple(shape)


def write_pattern(pattern: tuple[Dimension, ...]) -> str:
    """Write a shape pattern as the registry does: `[out/128, in/128]`."""
    return "[" + ", ".join(map(str, pattern)) + "]"

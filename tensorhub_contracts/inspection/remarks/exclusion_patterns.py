"""Entries of exclusion lists that are patterns, cut into pieces without quantifiers, so that each matches in linear time.

Two kinds are written. `re:` (compressed-tensors) is a regular expression, matched from the beginning of a module's name, as
`re.match` does. A `*` or `?` outside of it is a shell pattern, as ModelOpt, Quark and gpt-oss write it and as vLLM and TensorRT-LLM
read it (`fnmatch`): `*` stands for any text, dots included. What a shell pattern names is a module with all that is under it:
`model.layers.*.self_attn` covers `model.layers.0.self_attn.q_proj`, and not `model.layers.0.self_attn_norm`.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import attrs

from tensorhub_contracts.readable import Readable

#: Longer patterns are no patterns of modules.
PATTERN_LENGTH_LIMIT: Final = 1_000

_PLAIN_EXPRESSION = r"[\w.\-]*"


class ModulePattern(Protocol):
    """An entry that is a pattern."""

    @property
    def entry(self) -> str:
        """The entry as it is written."""

    def covers(self, module: str) -> bool:
        """Whether the entry covers a module."""


@attrs.frozen(slots=False, repr=False)
class Expression(Readable):
    """A `re:` entry: what stands between its `.*`, each piece without a quantifier."""

    entry: str
    pieces: tuple[re.Pattern[str], ...]

    def covers(self, module: str) -> bool:
        """Match from the beginning; the leftmost place for each piece is always a right one."""
        first = self.pieces[0].match(module)
        if first is None:
            return False
        position = first.end()
        for piece in self.pieces[1:]:
            found = piece.search(module, position)
            if found is None:
                return False
            position = found.end()
        return True


@attrs.frozen(slots=False, repr=False)
class ShellPattern(Readable):
    """An entry with `*` or `?`: what stands between its stars. The last piece ends where a segment does."""

    entry: str
    pieces: tuple[re.Pattern[str], ...]

    def covers(self, module: str) -> bool:
        """Match from the beginning of a module's name to the end of it or of a module that it is in."""
        position = 0
        for number, piece in enumerate(self.pieces):
            found = piece.search(module, position) if number else piece.match(module)
            if found is None:
                return False
            position = found.end()
        return True


def shell_pattern(entry: str) -> ShellPattern | None:
    """Return the pattern of an entry, or None for one that is not evaluated: a class of characters, or one that is too long."""
    if "[" in entry or len(entry) > PATTERN_LENGTH_LIMIT:
        return None
    pieces = [re.escape(piece).replace(r"\?", ".") for piece in re.split(r"\*+", entry.removesuffix("."))]
    pieces[-1] += r"(?=\.|\Z)" if pieces[-1] else ""
    return ShellPattern(entry, tuple(re.compile(piece, re.DOTALL) for piece in pieces))


def expression(entry: str) -> Expression | None:
    """Return the pattern of a `re:` entry, or None for one that could take unbounded time.

    Raises `re.error`, RecursionError or OverflowError for what is no regular expression or is too long to be one.
    """
    text = entry.removeprefix("re:")
    if len(text) > PATTERN_LENGTH_LIMIT:
        raise re.error(f"longer than {PATTERN_LENGTH_LIMIT} characters")
    re.compile(text)
    body = text.removesuffix("$") if not text.endswith("\\$") else text
    plain = body.removeprefix("^").replace("\\.", "").replace(".*", "")
    if not re.fullmatch(_PLAIN_EXPRESSION, plain):
        return None
    pieces = [re.compile(piece) for piece in body.removeprefix("^").split(".*")]
    if body is not text:
        pieces[-1] = re.compile(pieces[-1].pattern + r"\Z")
    return Expression(entry, tuple(pieces))

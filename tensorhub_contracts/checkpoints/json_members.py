"""Walks over the members of a large JSON object one by one, so that whoever has seen enough can stop.

A header of 100 MB that is wrong in every entry would take gigabytes as a tree of Python objects, and its first entries say that it is
wrong. The verdict on text that is walked to its end is that of `parse_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined]  # what the decoder itself is made of
from typing import Any, Final, cast

import msgspec

from tensorhub_contracts.strict_json import JsonFault, decode_text, strict_decoder

#: A value of more characters is only read if it is a text or a list of whole numbers: nothing else that belongs in a header is longer.
LONGEST_VALUE: Final = 65_536

_FIRST_LOOK: Final = 512
_whole_numbers = msgspec.json.Decoder(list[int])


class LongValueError(Exception):
    """A value is longer than any that belongs in a header; `position` is where it begins."""

    def __init__(self, position: int) -> None:
        self.position = position
        super().__init__(position)


class Members:
    """The members of one object: `key` steps to the next one, and then `value` reads its value or `inner` walks into it.

    Raises `JsonFault` where the text is not strict JSON.
    """

    def __init__(self, text: str, position: int, scan: Callable[[str, int], tuple[Any, int]]) -> None:
        self.text = text
        self.position = position
        self._scan = scan
        self._first = True

    @classmethod
    def of(cls, raw: bytes) -> Members:
        """Return the members of the object that is all of a text."""
        return cls(decode_text(raw), 0, cast("Any", strict_decoder(raw)).scan_once)

    def key(self) -> str | None:
        """Return the next key and step to its value, or None at the end of the object, which is stepped over."""
        position = self._after_space(self.position + self._first)  # over the brace that opens it
        mark = self.text[position : position + 1]
        if mark == "}":
            self.position = position + 1
            return None
        if not self._first:
            if mark != ",":
                raise _fault("Expecting ',' delimiter", position)
            position = self._after_space(position + 1)
            mark = self.text[position : position + 1]
        if mark != '"':
            raise _fault("Expecting property name enclosed in double quotes", position)
        self._first = False
        key, position = self._string(position)
        position = self._after_space(position)
        if self.text[position : position + 1] != ":":
            raise _fault("Expecting ':' delimiter", position)
        self.position = self._after_space(position + 1)
        return key

    def value(self) -> Any:
        """Read the value and step over it; raise `LongValueError` where it is too long, and stay."""
        for room in (_FIRST_LOOK, 8_192, LONGEST_VALUE):
            piece = self.text[self.position : self.position + room]
            whole = self.position + room >= len(self.text)
            try:
                value, end = self._scan(piece, 0)
            except (json.JSONDecodeError, StopIteration) as error:
                if whole:
                    at = error.pos if isinstance(error, json.JSONDecodeError) else error.value
                    raise _fault(getattr(error, "msg", "Expecting value"), self.position + at) from error
                continue  # it may only be cut
            except RecursionError as error:
                raise JsonFault("nested too deeply") from error
            if whole or end < len(piece):
                self.position += end
                return value
        return self._long_value()

    def inner(self) -> Members:
        """Return the members of the object that is the value; the caller steps over it with `leave`."""
        return Members(self.text, self.position, self._scan)

    def leave(self, inner: Members) -> None:
        """Step over an object that was walked to its end."""
        self.position = inner.position

    @property
    def at_object(self) -> bool:
        """Whether the value is an object."""
        return self.text[self.position : self.position + 1] == "{"

    def end(self) -> None:
        """Refuse what follows the object that is all of the text."""
        position = self._after_space(self.position)
        if position != len(self.text):
            raise _fault("Extra data", position)

    def _long_value(self) -> Any:
        mark = self.text[self.position : self.position + 1]
        if mark == '"':
            value, self.position = self._string(self.position)
            return value
        end = self.text.find("]", self.position) + 1 if mark == "[" else 0
        if not end:
            raise LongValueError(self.position)
        try:
            numbers = _whole_numbers.decode(self.text[self.position : end])
        except msgspec.MsgspecError as error:
            raise LongValueError(self.position) from error
        self.position = end
        return numbers

    def _string(self, position: int) -> tuple[str, int]:
        try:
            return scanstring(self.text, position + 1, True)  # type: ignore[no-any-return]
        except json.JSONDecodeError as error:
            raise _fault(error.msg, error.pos) from error

    def _after_space(self, position: int) -> int:
        return WHITESPACE.match(self.text, position).end()  # type: ignore[no-any-return]


def _fault(what: str, position: int) -> JsonFault:
    return JsonFault(f"{what} at character {position}")

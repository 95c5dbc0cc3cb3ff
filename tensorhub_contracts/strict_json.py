"""Strict JSON: UTF-8 without a byte-order mark, no duplicate keys, bounded depth and digits, one error for all faults."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any, Final, NoReturn

#: More bytes than any configuration file or document has: as objects in memory it takes some twenty times as much.
LARGEST_DOCUMENT: Final = 16 * 1024 * 1024

#: More levels than any document has. What walks over a document may take one call for each.
MOST_LEVELS: Final = 100

#: So many of the keys that stand more than once in an object are named.
MOST_REPEATED: Final = 1_000

_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER: Final = b"0" * 41
_NEGATIVE_ZERO: Final = re.compile(rb"-0(?![0-9.eE])")
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = [1 if code in b"[{" else -1 for code in range(256)]


class JsonFault(ValueError):
    """The text is not the JSON that we accept; the message says where and why."""


class Duplicates(dict[str, Any]):
    """An object in which some keys stood more than once; `repeated` names them, or the first of many. The last value is kept."""

    repeated: tuple[str, ...] = ()


def parse_json(text: bytes, *, allow_non_finite: bool = False) -> Any:
    """Parse JSON text.

    Objects with repeated keys become `Duplicates`, so that the caller can name them. `allow_non_finite` admits the
    literals NaN and Infinity, which configuration files hold and headers must not. Raises `JsonFault`.
    """
    decoded = decode_text(text)
    if _is_deep(text):
        raise JsonFault(f"nested too deeply: more than {MOST_LEVELS} levels")
    try:
        return strict_decoder(text, allow_non_finite=allow_non_finite).decode(decoded)
    except json.JSONDecodeError as error:
        raise JsonFault(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonFault("nested too deeply") from error


def decode_text(text: bytes) -> str:
    """Return JSON text as a string; raise `JsonFault` for what is not UTF-8 and for a byte-order mark."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonFault(f"not UTF-8 at byte {error.start}") from error
    if decoded.startswith("\ufeff"):
        raise JsonFault("begins with a byte-order mark")
    return decoded


def strict_decoder(text: bytes, *, allow_non_finite: bool = False) -> json.JSONDecoder:
    """Return the decoder for a text: numbers are looked at one by one only if the text holds one that is odd."""
    odd = _LONG_NUMBER in text.translate(_DIGITS_ALIKE) or (b"-0" in text and _NEGATIVE_ZERO.search(text) is not None)
    return json.JSONDecoder(
        object_pairs_hook=object_of,
        parse_constant=None if allow_non_finite else _refuse_constant,
        parse_int=_integer if odd else None,
    )


def _is_deep(text: bytes) -> bool:
    """Whether brackets stand within more than `MOST_LEVELS` others; those in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    brackets = _STRING.sub(b"", text).translate(None, _NO_BRACKETS)
    level = 0
    for start in range(0, len(brackets), 1_000_000):
        levels = list(accumulate(map(_STEP.__getitem__, brackets[start : start + 1_000_000]), initial=level))
        if max(levels) > MOST_LEVELS:
            return True
        level = levels[-1]
    return False


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: a lone surrogate, which JSON can spell, cannot."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def brief(value: Any, *, most: int = 80) -> str:
    """Write a JSON value as Python would, in `most` characters at most and without writing out more of it than that."""
    text = _part(value, most, 3)
    return text if len(text) <= most else text[: most - 3] + "..."


def _part(value: Any, most: int, levels: int) -> str:
    if isinstance(value, str):
        return ascii(value[: most + 1])
    if not isinstance(value, dict | list):
        return ascii(value)
    if not levels:
        return "..."
    if isinstance(value, list):
        return f"[{', '.join(_part(each, most, levels - 1) for each in value[:most])}]"
    members = (f"{_part(key, most, 0)}: {_part(each, most, levels - 1)}" for key, each in islice(value.items(), most))
    return f"{{{', '.join(members)}}}"


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members, as `Duplicates` if a key repeats."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    faulty = Duplicates(value)
    repeated = (key for key, count in Counter(map(itemgetter(0), pairs)).items() if count > 1)
    faulty.repeated = tuple(islice(repeated, MOST_REPEATED))
    return faulty


def _refuse_constant(literal: str) -> NoReturn:
    raise JsonFault(f"the literal {literal}, which is not JSON")


def _integer(digits: str) -> int | float:
    if len(digits) > 40:  # Python refuses more than 4,300 digits with an error of another type, and is slow before that
        raise JsonFault("a number of more than 40 digits")
    return int(digits) if digits != "-0" else -0.0  # a float, so that no reader takes it for a size

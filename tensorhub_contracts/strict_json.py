"""Strict JSON: UTF-8 without a byte-order mark, no duplicate keys, bounded depth and digits, one error for all faults."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class JsonFault(ValueError):
    """The text is not the JSON that we accept; the message says where and why."""


class Duplicates(dict[str, Any]):
    """An object in which some keys stood more than once; `repeated` names them. The last value is kept."""

    repeated: tuple[str, ...] = ()


def parse_json(text: bytes, *, allow_non_finite: bool = False) -> Any:
    """Parse JSON text.

    Objects with repeated keys become `Duplicates`, so that the caller can name them all. `allow_non_finite` admits
    the literals NaN and Infinity, which configuration files hold and headers must not. Raises `JsonFault`.
    """
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonFault(f"not UTF-8 at byte {error.start}") from error
    if decoded.startswith("\ufeff"):
        raise JsonFault("begins with a byte-order mark")
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_pairs,
            parse_constant=None if allow_non_finite else _refuse_constant,
            parse_int=_integer,
        )
    except JsonFault:
        raise
    except json.JSONDecodeError as error:
        raise JsonFault(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonFault("nested too deeply") from error
    return value


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: a lone surrogate, which JSON can spell, cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    repeated = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]  # add returns None
    faulty = Duplicates(value)
    faulty.repeated = tuple(dict.fromkeys(repeated))
    return faulty


def _refuse_constant(literal: str) -> NoReturn:
    raise JsonFault(f"the literal {literal}, which is not JSON")


def _integer(digits: str) -> int | float:
    if len(digits) > 40:  # Python refuses more than 4,300 digits with an error of another type, and is slow before that
        raise JsonFault(f"a number of {len(digits)} digits")
    return int(digits) if digits != "-0" else -0.0  # a float, so that no reader takes it for a size

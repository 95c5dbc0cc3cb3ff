"""Structures TOML data into frozen classes with cattrs; unknown keys are refused and every error carries its path."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import cattrs
from cattrs.errors import IterableValidationNote

from tensorhub_contracts.contract import DeclaredValue, Floor
from tensorhub_contracts.errors import RegistryError
from tensorhub_contracts.shapes import Dimension, parse_dimension

T = TypeVar("T")


def structure(data: Any, kind: type[T], *, name: str) -> T:
    """Return `data` as an instance of `kind`; raise `RegistryError` with one line a fault, each with its path."""
    try:
        return _converter().structure(data, kind)
    except (cattrs.BaseValidationError, cattrs.ForbiddenExtraKeysError) as error:
        raise RegistryError(f"{name}: {line}" for line in _lines(error)) from error


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, _exact(str))
    converter.register_structure_hook(int, _exact(int))
    converter.register_structure_hook(bool, _exact(bool))
    converter.register_structure_hook(Dimension, lambda value, _: parse_dimension(value))
    converter.register_structure_hook(DeclaredValue, lambda value, _: _declared_value(value))
    converter.register_structure_hook(Floor, lambda value, _: _floor(value))
    converter.register_structure_hook(DeclaredValue | None, lambda value, _: _declared_value(value))
    return converter


def _exact(kind: type) -> Any:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}, found {value!r}")
        return value

    return hook


def _declared_value(value: Any) -> DeclaredValue:
    if type(value) is str or type(value) is int:
        return value
    if type(value) is list and value and all(type(each) is int for each in value):
        return tuple(value)
    raise ValueError(f"a declared value is a string, a whole number or a list of whole numbers, not {value!r}")


def _floor(value: Any) -> Floor:
    if value == "none":
        return "none"
    if type(value) is int and value > 0:
        return value
    raise ValueError(f"a floor is a compute capability such as 89, or 'none', not {value!r}")


def _lines(error: Exception, path: str = "") -> list[str]:
    """Flatten nested validation errors into `path: message` lines."""
    if isinstance(error, cattrs.BaseValidationError):
        inner = [(each, None) for each in error.exceptions]
        if isinstance(error, cattrs.IterableValidationError | cattrs.ClassValidationError):
            noted, plain = error.group_exceptions()
            inner = [(each, note) for each, note in noted] + [(each, None) for each in plain]
        lines: list[str] = []
        for each, note in inner:
            step = ""
            if note is not None:
                step = f"[{note.index}]" if isinstance(note, IterableValidationNote) else f".{note.name}"
            lines += _lines(each, path + step)
        return lines
    return [f"{path.lstrip('.') or 'top level'}: {_message(error)}"]


def _message(error: Exception) -> str:
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return "unknown key " + ", ".join(sorted(map(repr, error.extra_fields)))
    if isinstance(error, KeyError):
        return f"missing key {error.args[0]!r}"
    return str(error)

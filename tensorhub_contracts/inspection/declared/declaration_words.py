"""Declarations in words, short enough for a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.registry.contract import Requirement

#: Keys that list modules: they are cross-checked with the bytes and declare no layout.
MODULE_LISTS: Final = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "modules_to_not_quantize")

_DECLARATION_LENGTH, _VALUE_LENGTH = 160, 80


def layout_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a declaration that declare a layout."""
    return {key: value for key, value in content.items() if key not in MODULE_LISTS and value is not None}


def describe_declaration(content: Mapping[str, Any]) -> str:
    """Write the keys that declare a layout."""
    shown = ", ".join(f"{key}={write_value(value)}" for key, value in layout_keys(content).items())
    return _cut(shown, _DECLARATION_LENGTH) or "nothing"


def write_wanted(requirement: Requirement) -> str:
    """Write the value that a contract requires."""
    if requirement.null:
        return "null"
    if requirement.keys:
        return f"an object with no keys but {', '.join(requirement.keys)}"
    if isinstance(requirement.equals, tuple):
        return write_shape(requirement.equals)
    return " or ".join(write_value(each) for each in requirement.any_of or (requirement.equals,))


def write_value(value: Any) -> str:
    """Write a value as JSON does, in ASCII."""
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() else ascii(value)
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif type(value) is list and len(value) == 2 and value[0] == 1 and all(type(each) is int and each > 0 for each in value):
        text = f"{write_shape(value)} (row groups of {value[1]})"
    else:
        text = ascii(value)
    return _cut(text, _VALUE_LENGTH)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."

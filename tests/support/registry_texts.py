"""Writes a registry as TOML text from plain tables, so that a test can change one fact and read it back."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Table = dict[str, Any]

SHIPPED_TEXT = (Path(__file__).parents[2] / "registry.toml").read_text("utf-8")


def shipped() -> Table:
    """Return the tables of `registry.toml`, to be changed at will."""
    return tomllib.loads(SHIPPED_TEXT)


def small() -> Table:
    """Return a registry of one unquantized and one quantized contract, with everything that they refer to."""
    tables = shipped()
    kept = {"plain.bf16@1", "hf.fp8-blockwise@1"}
    tables["contract"] = [each for each in tables["contract"] if each["handle"] in kept]
    tables["conversion"] = []
    return tables


def changed(tables: Table, change: Callable[[Table], None]) -> Table:
    """Return a copy with a change made to it."""
    copied = copy.deepcopy(tables)
    change(copied)
    return copied


def contract(tables: Table, handle: str) -> Table:
    """Return the table of a contract, to be changed in place."""
    (found,) = (each for each in tables["contract"] if each["handle"] == handle)
    return found


def to_toml(tables: Table) -> str:
    """Write tables as TOML: top-level values first, then arrays of tables, everything inside them inline."""
    lines = [f"{key} = {_value(value)}" for key, value in tables.items() if not _is_tables(value)]
    for key, value in tables.items():
        for table in value if _is_tables(value) else ():
            lines += [f"[[{key}]]", *(f"{_key(name)} = {_value(each)}" for name, each in table.items())]
    return "\n".join(lines) + "\n"


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _key(name: str) -> str:
    return _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in value) + '"'
    return repr(value)

"""Structures TOML data into frozen classes; types are exact, unknown keys are refused and every error carries its path."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tensorhub_contracts.errors import RegistryError

T = TypeVar("T")


def structure(data: dict[str, Any], kind: type[T], *, name: str) -> T:
    """Return `data` as an instance of `kind`.

    Raises `RegistryError` with a line for each faulty table of the file, `name: path: what is wrong`.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        faults = [fault for key, value in data.items() for fault in _faults_of(key, value, kind)]
        raise RegistryError(f"{name}: {fault}" for fault in faults or [_with_path(str(error), "")]) from error


def _faults_of(key: str, value: Any, kind: type) -> list[str]:
    """Structure each table by itself, so that a fault in one hides none in another."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)} if issubclass(kind, msgspec.Struct) else {}
    if types and key not in types:
        return [f"{key}: unknown key"]
    if isinstance(value, list) and key in types:
        return [fault for place, table in enumerate(value) if (fault := _fault([table], types[key], f"{key}[{place}]", "$[0]"))]
    wanted = types[key] if types else kind.__args__[1]  # type: ignore[attr-defined]  # a dict type, whose values are tables
    fault = _fault(value, wanted, key, "$")
    return [fault] if fault else []


def _fault(value: Any, kind: Any, path: str, root: str) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _with_path(str(error), path, root)
    return ""


def _with_path(message: str, path: str, root: str = "$") -> str:
    """Turn msgspec's `what is wrong - at `$.x[0]`` into `path.x[0]: what is wrong`."""
    what, _, where = message.partition(" - at `")
    inside = where.rstrip("`").removeprefix(root)
    return f"{(path + inside).lstrip('.') or 'top level'}: {what}"

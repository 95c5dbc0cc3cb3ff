"""JSON Schemas of what this tool reads and writes, made from the frozen classes themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec


def _registry() -> type:
    from tensorhub_contracts.contract import RegistryFile

    return RegistryFile


def _inspection() -> type:
    from tensorhub_contracts.reports.json_report import Report

    return Report


#: Name to the class that describes it; the class is imported when its schema is asked for.
SCHEMAS: Final[dict[str, Callable[[], type]]] = {"registry": _registry, "inspection": _inspection}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `registry` (the file registry.toml) or `inspection` (--output json)."""
    schema = msgspec.json.schema(SCHEMAS[name]())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"tensorhub {name}", **schema}

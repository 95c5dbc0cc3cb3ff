"""JSON Schemas of what this tool reads and writes, made from the frozen classes themselves."""

from __future__ import annotations

import importlib
from typing import Any, Final

from tensorhub_contracts.documents import document_schema

#: Name to the class that describes it, as `module:class`; the module is imported when its schema is asked for.
SCHEMAS: Final = {
    "registry": "registry.contract:RegistryFile",
    "plugin-contracts": "registry.contract:OwnedContractsFile",
    "inspection": "reports.json_report:Report",
    "plugins": "reports.plugins_report:PluginsReport",
    "lanes": "lanes.image_lanes:ImageLanes",
    "artifact": "hub.artifact:Artifact",
    "demand": "hub.demand:Demand",
    "verdict": "hub.verdict:Verdict",
    "problem": "hub.problem:Problem",
}

#: Reports, which nothing reads back: later ones may have further keys.
_WRITTEN_ONLY: Final = ("inspection", "plugins")


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a file or a report of this tool; `SCHEMAS` has the names."""
    module, _, kind = SCHEMAS[name].partition(":")
    described = getattr(importlib.import_module(f"tensorhub_contracts.{module}"), kind)
    schema = document_schema(described, closed=name not in _WRITTEN_ONLY)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"tensorhub {name}", **schema}

"""SARIF 2.1.0, for code-scanning views: each refusal code a rule, each violation a result."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tensorhub_contracts._version import __version__
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.reports.summary import file_of


def write(inspections: Sequence[Inspection]) -> str:
    """Return the log as JSON. An accepted checkpoint has no result."""
    found = [(inspection, violation) for inspection in inspections for violation in inspection.violations]
    codes = list(dict.fromkeys(violation.code for _, violation in found))
    known = explanations()
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "tensorhub",
                        "version": __version__,
                        "rules": [
                            {
                                "id": code,
                                "shortDescription": {"text": known[code].title},
                                "fullDescription": {"text": known[code].meaning},
                                "help": {"text": known[code].remedy},
                            }
                            for code in codes
                        ],
                    }
                },
                "results": [_result(inspection, violation, codes.index(violation.code)) for inspection, violation in found],
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(inspection: Inspection, violation: Violation, rule: int) -> dict[str, Any]:
    looks = f" This is how {violation.resembles} writes it." if violation.resembles else ""
    text = f"{violation.object}: expected {violation.expected}; found {violation.found}.{looks} {violation.remedy}"
    return {
        "ruleId": violation.code,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(file_of(inspection, violation.shard))}},
                "logicalLocations": [{"fullyQualifiedName": violation.object, "kind": "member"}],
            }
        ],
    }


def _uri(path: Path) -> str:
    """Return a URI reference; a relative one keeps what looks like a scheme from being taken for one."""
    if path.is_absolute():
        return path.as_uri()
    quoted = quote(os.fsencode(path.as_posix()))
    return "./" + quoted if ":" in quoted.partition("/")[0] or "%3A" in quoted.partition("/")[0] else quoted

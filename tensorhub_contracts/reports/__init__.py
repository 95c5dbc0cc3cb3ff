"""Reports: one result, one writer a format. Each writer is a function from inspections to text."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Final, cast

from tensorhub_contracts.inspection.result import Inspection

#: A writer turns the inspections of one run, one for each component, into the text of a report.
Writer = Callable[[Sequence[Inspection]], str]

#: Format name to the module that writes it; a module is imported when its format is asked for.
FORMATS: Final = {
    "text": "text",
    "json": "json_report",
    "sarif": "sarif",
    "junit": "junit",
    "github": "github",
}


def writer(format_name: str) -> Writer:
    """Return the writer of a format; raises KeyError if there is none."""
    module = importlib.import_module(f"{__name__}.{FORMATS[format_name]}")
    return cast("Writer", module.write)

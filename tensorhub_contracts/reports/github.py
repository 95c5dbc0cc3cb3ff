"""Workflow commands of GitHub Actions: an error for each group of violations, a notice for a proved contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import ViolationGroup, file_of, violation_groups


def write(inspections: Sequence[Inspection]) -> str:
    """Return one command a line."""
    return "".join(line + "\n" for inspection in inspections for line in _lines(inspection))


def _lines(inspection: Inspection) -> Iterator[str]:
    name = inspection.path + (f" {inspection.component}" if inspection.component else "")
    if inspection.contract is not None:
        message = f"{name} is in {inspection.contract}, {inspection.unit_count:,} units"
        yield f"::notice title={_property(inspection.contract)}::{_data(message)}"
    for group in violation_groups(inspection.violations):
        file = _property(str(file_of(inspection, group.objects[0][1])))
        yield f"::error file={file},title={_property(group.code)}::{_data(_message(group))}"


def _message(group: ViolationGroup) -> str:
    objects = ", ".join(name for name, _ in group.objects[:3])
    more = f" and {len(group.objects) - 3:,} more" if len(group.objects) > 3 else ""
    looks = f" This is how {group.resembles} writes it." if group.resembles else ""
    return f"{objects}{more}: expected {group.expected}; found {group.found}.{looks} {group.remedy}"


def _data(text: str) -> str:
    """Escape a message; what would drive the log that shows it is spelled out."""
    return printable(_escape(text))


def _property(text: str) -> str:
    return printable(_escape(text).replace(":", "%3A").replace(",", "%2C"))


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

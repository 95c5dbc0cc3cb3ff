"""JUnit XML, for continuous integration: a suite for each checkpoint, a case for the verdict, a failed one for each code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import violation_groups

#: What XML 1.0 cannot hold, and what names from a file may.
_NOT_XML = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(inspections: Sequence[Inspection]) -> str:
    """Return the document. A refused checkpoint has one failed case for each code; the failure lists every violation."""
    root = Xml.Element("testsuites", name="tensorhub inspect")
    for inspection in inspections:
        codes = inspection.codes
        name = inspection.path + (f" {inspection.component}" if inspection.component else "")
        count = max(1, len(codes))
        suite = Xml.SubElement(root, "testsuite", name=_clean(name), tests=str(count), failures=str(len(codes)), errors="0", skipped="0")
        if inspection.contract is not None:
            case = Xml.SubElement(suite, "testcase", classname=_clean(name), name=f"is in {inspection.contract}")
            Xml.SubElement(case, "system-out").text = "\n".join(map(_clean, inspection.proved))
        for code in codes:
            case = Xml.SubElement(suite, "testcase", classname=_clean(name), name=code)
            violations = tuple(each for each in inspection.violations if each.code == code)
            first = violation_groups(violations)[0]
            message = f"{first.objects[0][0]}: expected {first.expected}; found {first.found}"
            failure = Xml.SubElement(case, "failure", type=code, message=_clean(message))
            failure.text = "\n".join(_clean(str(each)) for each in violations)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    """Spell out what would drive whatever shows the report, line ends among it, and what XML cannot hold."""
    return _NOT_XML.sub(lambda matched: ascii(matched[0])[1:-1], printable(text))

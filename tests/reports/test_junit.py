"""JUnit XML: well formed whatever the names are, and with counts that are those of its elements."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tensorhub_contracts import Inspection
from tensorhub_contracts.reports import writer
from tests.support.inspections import accepted, hostile, pipeline, refused, unreadable
from tests.support.trees import BLOCKWISE


def suites_of(*inspections: Inspection) -> list[Xml.Element]:
    """Write a document, check the counts of every suite, and return the suites."""
    text = writer("junit")(inspections)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = Xml.fromstring(text.encode())
    assert root.tag == "testsuites"
    assert len(root) == len(inspections)
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases) > 0
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert suite.attrib["errors"] == suite.attrib["skipped"] == "0"
        assert len({case.attrib["name"] for case in cases}) == len(cases)
        assert all(case.attrib["classname"] for case in cases)
    return list(root)


def test_accepted_is_one_passed_case_that_names_the_contract(tmp_path: Path) -> None:
    (suite,) = suites_of(accepted(tmp_path / "tree"))
    (case,) = suite.findall("testcase")
    assert suite.attrib["name"] == str(tmp_path / "tree")
    assert BLOCKWISE in case.attrib["name"]
    assert suite.attrib["failures"] == "0"
    assert "every payload tiled" in (case.findtext("system-out") or "")


def test_refused_is_a_failed_case_for_each_code_that_lists_every_violation(tmp_path: Path) -> None:
    inspection = refused(tmp_path / "tree")
    (suite,) = suites_of(inspection)
    assert [case.attrib["name"] for case in suite.findall("testcase")] == list(inspection.codes)
    failures = {failure.attrib["type"]: failure for failure in suite.iter("failure")}
    text = failures["scale-grid-transposed"].text or ""
    assert len(text.splitlines()) == 5
    for violation in inspection.violations:
        assert str(violation) in (failures[violation.code].text or "")
    assert "[2, 3]" in failures["scale-grid-transposed"].attrib["message"]
    assert "[3, 2]" in failures["scale-grid-transposed"].attrib["message"]


def test_unreadable(tmp_path: Path) -> None:
    (suite,) = suites_of(unreadable(tmp_path / "tree"))
    assert [failure.attrib["type"] for failure in suite.iter("failure")] == ["file-empty"]


def test_a_pipeline_is_a_suite_for_each_component(tmp_path: Path) -> None:
    encoder, transformer = suites_of(*pipeline(tmp_path / "pipe"))
    assert encoder.attrib["name"].endswith(" text_encoder")
    assert encoder.attrib["failures"] == "0"
    assert transformer.attrib["name"].endswith(" transformer")
    assert transformer.attrib["failures"] == "2"


def test_hostile_names_stay_well_formed(tmp_path: Path) -> None:
    (suite,) = suites_of(hostile(tmp_path / "tree"))
    (failure,) = suite.iter("failure")
    text = failure.text or ""
    assert "\\x1b[31m\\x00\\ufffe&<>\"']]>%0A::error::" in text  # spelled out where XML has no way to hold it, untouched where it has
    assert "\x1b" not in failure.attrib["message"]


@pytest.mark.parametrize("name", ["<a>&\"'", "esc\x1b", "two\nlines", "with space"])
def test_hostile_folders_stay_well_formed(tmp_path: Path, name: str) -> None:
    (suite,) = suites_of(refused(tmp_path / name))
    assert suite.attrib["name"] == str(tmp_path / name).replace("\x1b", "\\x1b").replace("\n", "\\n")

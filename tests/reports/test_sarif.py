"""SARIF 2.1.0: what a code-scanning service asks of a log, checked by hand."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.reports import writer
from tests.support.inspections import accepted, hostile, pipeline, refused, unreadable


def run_of(*inspections: Inspection) -> dict[str, Any]:
    """Write a log, check what every log must have, and return its run."""
    log = json.loads(writer("sarif")(inspections))
    assert log["version"] == "2.1.0"
    assert "sarif-2.1.0" in log["$schema"]
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "tensorhub"
    assert driver["version"]
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    for rule in driver["rules"]:
        known = explanations()[rule["id"]]
        assert rule["shortDescription"]["text"] == known.title
        assert rule["fullDescription"]["text"] == known.meaning
        assert rule["help"]["text"] == known.remedy
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == "error"
        assert result["message"]["text"].strip()
        (location,) = result["locations"]
        assert location["logicalLocations"][0]["fullyQualifiedName"]
        path_of(location["physicalLocation"]["artifactLocation"]["uri"])
    found: dict[str, Any] = run
    return found


def path_of(uri: str) -> Path:
    """Return the path that a URI reference means, by the standard library; fail if it is none."""
    assert uri.isascii(), uri
    assert uri.isprintable(), uri
    assert not set(uri) & set(' "<>\\^`{|}'), uri
    parts = urllib.parse.urlsplit(uri)
    assert parts.scheme in ("", "file"), uri
    assert (parts.query, parts.fragment, parts.netloc) == ("", "", ""), uri
    return Path(urllib.parse.unquote(parts.path))


def uris(run: dict[str, Any]) -> list[str]:
    return [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]


def test_accepted_has_no_result(tmp_path: Path) -> None:
    run = run_of(accepted(tmp_path / "tree"))
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_each_violation_is_a_result_and_each_code_a_rule(tmp_path: Path) -> None:
    inspection = refused(tmp_path / "tree")
    run = run_of(inspection)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(inspection.codes)
    assert len(run["tool"]["driver"]["rules"]) == 2
    assert len(run["results"]) == len(inspection.violations) == 6
    for result, violation in zip(run["results"], inspection.violations, strict=True):
        assert result["ruleId"] == violation.code
        for part in (violation.object, violation.expected, violation.found, violation.remedy):
            assert part in result["message"]["text"]


def test_rules_are_shared_by_the_components_of_a_pipeline(tmp_path: Path) -> None:
    components = pipeline(tmp_path / "pipe")
    run = run_of(*components, refused(tmp_path / "other"), unreadable(tmp_path / "empty"))
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert path_of(uris(run)[0]) == tmp_path / "pipe" / "transformer" / "model.safetensors"
    assert path_of(uris(run)[-1]) == tmp_path / "empty" / "model.safetensors"


NAMES = ["plain", "with space", "100%", "%20", "a#b", "a?b", "two\nlines", "ünï", "a[1]", "a:b"]


@pytest.mark.parametrize("name", NAMES)
def test_the_uri_of_an_absolute_path_leads_to_the_shard(tmp_path: Path, name: str) -> None:
    for uri in uris(run_of(refused(tmp_path / name))):
        assert path_of(uri) == tmp_path / name / "model.safetensors"


@pytest.mark.parametrize("name", NAMES)
def test_the_uri_of_a_relative_path_leads_to_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in uris(run_of(refused(Path(name)))):
        assert path_of(uri).resolve() == tmp_path / name / "model.safetensors"


def test_the_uri_of_a_broken_model_index_leads_to_it(tmp_path: Path) -> None:
    pipeline(tmp_path / "pipe")
    (tmp_path / "pipe" / "model_index.json").write_text("{", encoding="utf-8")
    for inspection in (inspect(tmp_path / "pipe"), inspect(tmp_path / "pipe", "transformer")):
        assert inspection.codes == ("config-json",)
        assert [path_of(uri) for uri in uris(run_of(inspection))] == [tmp_path / "pipe" / "model_index.json"]


def test_hostile_names(tmp_path: Path) -> None:
    inspection = hostile(tmp_path / "tree")
    (result,) = run_of(inspection)["results"]
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == inspection.violations[0].object

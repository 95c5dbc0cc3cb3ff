"""What the readers of records refuse beyond the schema, and what a demand in Python may not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import Demand, Refusal, derive_execution_lanes, inspect, record_artifact, satisfies
from tensorhub_contracts.hub.artifact import read_artifact
from tensorhub_contracts.hub.demand import read_demand
from tensorhub_contracts.lanes.documents import lanes_json, read_lanes
from tensorhub_contracts.lanes.image_lanes import lanes_digest

VECTOR = json.loads((Path(__file__).parents[1] / "goldens" / "satisfies" / "choose-floor-equal.json").read_text("utf-8"))


def refused(read: Any, text: str | bytes) -> str:
    with pytest.raises(Refusal) as caught:
        read(text)
    (violation,) = caught.value.violations
    assert violation.code == "document-malformed"
    return violation.found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"sm": 90, "sm": 1}', "'sm' more than once in $"),
        ('{"accept": {"a": [], "a": []}}', "'a' more than once in $.accept"),
        ('{"sm": NaN}', "NaN"),
        ('\ufeff{"sm": 90}', "byte-order mark"),
        (b'{"sm": \xff}', "not UTF-8"),
        ('{"lanes": {"\\ud800": "fp8"}}', "lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ('{"sm": 90.0}', "int"),
        ('{"sm": true}', "int"),
        ("null", "object"),
        ("", "Expecting value"),
    ],
)
def test_a_demand_is_strict_json(text: str | bytes, found: str) -> None:
    assert found in refused(read_demand, text)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"component": "*"}, "'*', which stands for every component"),
        ({"digest": ""}, "matching regex"),
        ({"digest": "sha256:" + "0" * 63}, "matching regex"),
        ({"headers_digest": "sha1:" + "0" * 64}, "matching regex"),
        ({"tensors": -1}, ">= 0"),
        ({"units": True}, "int"),
        ({"floors": {"fp8-w8a16": 0}}, ">= 1"),
        ({"floors": {"fp8-w8a16": "None"}}, "enum"),
        ({"supersedes": [{"contract": "no handle", "digest": "sha256:" + "0" * 64}]}, "matching regex"),
    ],
)
def test_a_record_holds_what_a_proof_writes(change: dict[str, Any], found: str) -> None:
    record = json.loads(json.dumps(VECTOR["artifact"]))
    assert read_artifact(json.dumps(record))
    record["components"][0] |= change
    assert found in refused(read_artifact, json.dumps(record))


def lanes(**change: Any) -> str:
    """Return a vector's lanes with a change and the digest that it then has."""
    return json.dumps({**VECTOR["lanes"], **change})


def test_lanes_of_another_derivation_are_not_compared() -> None:
    assert "this release compares tensorhub.execution-lanes@1" in refused(read_lanes, lanes(derivation="tensorhub.execution-lanes@2"))


def test_a_lane_of_a_contract_has_one_decoder() -> None:
    entry = VECTOR["lanes"]["contracts"][0]
    twice = refused(read_lanes, lanes(contracts=[entry, {**entry, "decoder": "other:decoder"}]))
    assert "has two decoders" in twice
    assert "has two decoders" in refused(read_lanes, lanes(contracts=[entry, entry]))


def test_a_lane_is_ranked_once() -> None:
    ranked = VECTOR["lanes"]["lanes"]
    assert "stands more than once" in refused(read_lanes, lanes(lanes=[*ranked, ranked[0]]))


def test_each_lane_stands_in_the_list_of_its_table() -> None:
    both = {"lanes": ["fp8-w8a16+eager", "fp8-w8a32+eager"], "lanes_beyond_table": ["bf16-w16a16+eager"]}
    found = refused(read_lanes, lanes(**both))
    assert "fp8-w8a32+eager is in lanes, and not in the hub's lane table" in found
    assert "bf16-w16a16+eager is beyond the table, and in the hub's lane table" in found
    assert "fp8-w8a16+eager is" not in found


def test_what_is_derived_is_read_back_with_its_digest() -> None:
    derived = derive_execution_lanes()
    assert read_lanes(lanes_json(derived)) == derived
    assert lanes_digest(derived) == derived.digest


@pytest.mark.parametrize("facts", [{"sm": 0}, {"sm": -1}, {"sm": True}, {"sm": "90"}, {"sm": 90.0}, {"adapters": 1}, {"adapters": None}])
def test_a_demand_made_in_python_is_checked_too(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(facts))):
        Demand(**facts)


def test_one_inspection_of_each_component_and_at_least_one() -> None:
    inspection = inspect(b"")
    for inspections in ([], [inspection, inspection]):
        with pytest.raises(ValueError, match="one inspection of each component"):
            satisfies(inspections, derive_execution_lanes(), Demand())
        with pytest.raises(ValueError, match="one inspection of each component"):
            record_artifact(inspections, None)  # type: ignore[arg-type]  # refused before the registry is looked at

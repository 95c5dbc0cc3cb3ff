"""A refusal as the body of an RFC 9457 problem."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tensorhub_contracts
from tensorhub_contracts import Refusal, Violation, problem_details
from tensorhub_contracts.hub.problem import MEDIA_TYPE, problem_json
from tests.support.hub_records import valid

CODES = tomllib.loads(Path(tensorhub_contracts.__file__).with_name("refusal_codes.toml").read_text("utf-8"))
MEMBERS = {"type": str, "title": str, "status": int, "detail": str, "code": str, "violations": list, "remedy": str, "retryable": bool}

#: A lone surrogate, as Python has it for a byte of a file name that is not UTF-8.
LONE = "layers\udcff.weight"


def body(*violations: Violation, nearest: str | None = None) -> Any:
    """Return the problem of a refusal, written, read back and held against its schema."""
    text = problem_json(problem_details(Refusal(violations, nearest=nearest)))
    text.encode("utf-8")
    assert text.endswith("}\n")
    return valid("problem", text)


def violation(code: str = "lane-unavailable", **changes: str) -> Violation:
    fields = {"object": "bf16", "expected": "a lane of the image", "found": "fp8-w8a16+eager", "remedy": "Ask for another."}
    return Violation(code=code, **{**fields, **changes})


def test_the_members_are_those_of_the_standard_and_the_extensions() -> None:
    problem = body(violation(), nearest="hf.fp8-blockwise@1")
    assert set(problem) == {*MEMBERS, "nearest"}
    for member, kind in MEMBERS.items():
        assert type(problem[member]) is kind, member
    assert problem["nearest"] == "hf.fp8-blockwise@1"
    assert body(violation())["nearest"] is None


def test_the_values_are_those_of_the_first_violation() -> None:
    problem = body(violation(component="vae"), violation("floor-unmet", object="fp8-w8a8", remedy="Use a device."))
    assert problem["type"] == "urn:tensorhub:refusal:lane-unavailable"
    assert problem["code"] == "lane-unavailable"
    assert problem["status"] == 422
    assert problem["retryable"] is False
    assert problem["title"] == CODES["lane-unavailable"]["title"]
    assert problem["remedy"] == "Ask for another."
    assert [each["code"] for each in problem["violations"]] == ["lane-unavailable", "floor-unmet"]
    for fact in ("bf16", "vae", "a lane of the image", "fp8-w8a16+eager", "1 more"):
        assert fact in problem["detail"]


def test_the_detail_of_a_single_violation_counts_no_others() -> None:
    assert "more" not in body(violation())["detail"]


def test_the_media_type_is_that_of_the_standard() -> None:
    assert MEDIA_TYPE == "application/problem+json"


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_code_can_be_written(code: str) -> None:
    problem = body(violation(code))
    assert problem["code"] == code
    assert re.fullmatch(r"urn:tensorhub:refusal:[a-z0-9]+(-[a-z0-9]+)*", problem["type"])
    assert problem["title"] == CODES[code]["title"]
    assert not problem["title"].endswith("."), "a title is no sentence (RFC 9457, 3.1.3)"


def test_the_title_does_not_change_from_one_occurrence_to_the_next() -> None:
    assert body(violation(object="a"))["title"] == body(violation(object="b", found="c"))["title"]


@pytest.mark.parametrize("field", ["object", "expected", "found", "shard", "component"])
def test_surrogates_in_names_do_not_break_the_json(field: str) -> None:
    problem = body(violation(**{field: LONE}))
    assert problem["violations"][0][field] == "layers\\udcff.weight"


def test_surrogates_in_a_demand_and_an_artifact_do_not_break_the_json() -> None:
    with pytest.raises(Refusal) as caught:
        tensorhub_contracts.satisfies(
            tensorhub_contracts.Artifact(1, "t", ()),
            tensorhub_contracts.ImageLanes(1, "d", (), (), (), (), "", None),  # type: ignore[arg-type]  # never looked at
            tensorhub_contracts.Demand(accept={LONE: (LONE,)}, lanes={LONE: LONE}),
        )
    text = problem_json(problem_details(caught.value))
    assert [each["code"] for each in json.loads(text)["violations"]] == ["handle-malformed", "lane-malformed"]


def test_control_characters_and_quotes_survive() -> None:
    name = 'a"b\\c\n\x00\x1b[31m\u2028é'
    assert body(violation(object=name))["violations"][0]["object"] == name


def test_a_violation_keeps_all_its_fields() -> None:
    problem = body(violation(shard="model.safetensors", resembles="hf.fp8-blockwise@1", component="vae"))
    assert problem["violations"] == [
        {
            "code": "lane-unavailable",
            "object": "bf16",
            "expected": "a lane of the image",
            "found": "fp8-w8a16+eager",
            "remedy": "Ask for another.",
            "shard": "model.safetensors",
            "resembles": "hf.fp8-blockwise@1",
            "component": "vae",
        }
    ]

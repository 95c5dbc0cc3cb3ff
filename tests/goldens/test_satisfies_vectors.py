"""The golden vectors of `satisfies`: each is run through the product and through a second implementation, written from the README."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorhub_contracts
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.hub.artifact import read_artifact
from tensorhub_contracts.hub.demand import read_demand
from tensorhub_contracts.hub.problem import problem_details
from tensorhub_contracts.hub.satisfies import satisfies
from tensorhub_contracts.lanes.documents import read_lanes
from tensorhub_contracts.reports.schemas import json_schema

VECTORS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(Path(__file__).with_name("satisfies").glob("*.json"))}
COMPARED = {"component", "contract", "lane", "decoder", "rejected"}
READERS: dict[str, Callable[[str], Any]] = {"artifact": read_artifact, "lanes": read_lanes, "demand": read_demand}

#: The hub's lane table, as the README lists it.
README = (Path(__file__).with_name("satisfies") / "README.md").read_text("utf-8")
(TABLE,) = (set(block.split()) for block in re.findall(r"```text\n(.*?)```", README, re.DOTALL))

#: Gate codes that no comparison gives: they are of `lanes --check`, of decoding, and of the installation.
NOT_OF_A_COMPARISON = {"lanes-differ", "lane-dtype", "plugin-conflict"}

#: Codes of steps 1 to 3, which read documents; the second implementation compares those that are well formed.
OF_READING = {"document-malformed", "handle-malformed", "lane-malformed", "lanes-digest"}
OTHER_CODES = {"handle-malformed", "contract-ahead", "contract-digest", "component-unknown"}


def dumped(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def digest_of(lanes: dict[str, Any]) -> str:
    """Work out the digest as the README says, with no code of the product."""
    facts = {key: value for key, value in lanes.items() if key not in ("digest", "scan")}
    facts["contracts"] = [{key: value for key, value in each.items() if key != "why"} for each in lanes["contracts"]]
    facts["excluded"] = [{key: value for key, value in each.items() if key != "reason"} for each in lanes["excluded"]]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def answered(artifact: Any, lanes: Any, demand: Any) -> dict[str, Any]:
    """Return what the product answers, in the form of `expect`; every answer is held against its schema."""
    try:
        verdict = satisfies(read_artifact(dumped(artifact)), read_lanes(dumped(lanes)), read_demand(dumped(demand)))
    except Refusal as refusal:
        problem = json.loads(msgspec.json.encode(problem_details(refusal)))
        validator("problem").validate(problem)
        assert all(problem[text] for text in ("title", "detail", "remedy"))
        assert problem["remedy"] == problem["violations"][0]["remedy"]
        violations = [{key: each[key] for key in ("code", "component", "object")} for each in problem["violations"]]
        kept = {key: problem[key] for key in ("status", "code", "type", "nearest", "retryable")}
        return {"satisfied": False, **kept, "violations": violations}
    body = json.loads(msgspec.json.encode(verdict))
    validator("verdict").validate(body)
    assert body["lanes_digest"] == lanes["digest"]
    for each, record in zip(body["components"], artifact["components"], strict=True):
        assert each["headers_digest"] == record["headers_digest"]
        entry = next(entry for entry in lanes["contracts"] if (entry["decoder"], entry["contract"]) == (each["decoder"], each["contract"]))
        assert [each[key] for key in ("digest", "distribution", "version")] == [entry[key] for key in ("digest", "distribution", "version")]
    return {
        "satisfied": True,
        "components": [{key: _short(value) for key, value in each.items() if key in COMPARED} for each in body["components"]],
    }


def _short(value: Any) -> Any:
    return [{key: text for key, text in each.items() if key != "reason"} for each in value] if isinstance(value, list) else value


# The second implementation: the numbered steps of satisfies/README.md, for documents that are well formed.

STAGE = {"contract": 0, "digest": 1, "lane": 2, "floor": 3, "adapters": 4}


def second_answer(artifact: dict[str, Any], lanes: dict[str, Any], demand: dict[str, Any]) -> dict[str, Any]:
    """Compare well-formed documents."""
    components = artifact["components"]
    names = [record["component"] for record in components]
    faults: list[tuple[int, str, str, str]] = []
    for name in dict.fromkeys([*demand.get("accept", {}), *demand.get("lanes", {})]):  # step 4
        if name != "*" and name not in names:
            faults.append((-1, "component-unknown", "", name))
    chosen = []
    for record in components:
        found = component_answer(record, lanes, demand)
        if isinstance(found, dict):
            chosen.append(found)
        else:
            faults += [(STAGE[stage], code, record["component"], place) for stage, code, place in found]
    if not faults:
        return {"satisfied": True, "components": chosen}
    faults.sort(key=lambda fault: fault[0])  # step 9
    nearest = None
    if faults[0][0] >= 0:  # step 10
        title = components[names.index(faults[0][2])]["contract"].split("@")[0]
        majors = [int(each["contract"].split("@")[1]) for each in lanes["contracts"] if each["contract"].split("@")[0] == title]
        nearest = f"{title}@{max(majors)}" if majors else None
    return refusal_of(nearest, [(code, component, place) for _, code, component, place in faults])


def refusal_of(nearest: str | None, faults: list[tuple[str, str, str]]) -> dict[str, Any]:
    code = faults[0][0]
    violations = [{"code": code, "component": component, "object": place} for code, component, place in faults]
    kind = f"urn:tensorhub:refusal:{code}"
    return {"satisfied": False, "status": 422, "code": code, "type": kind, "nearest": nearest, "retryable": False, "violations": violations}


def known(each: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["contract"], each["digest"])] + [(older["contract"], older["digest"]) for older in each["supersedes"]]


def component_answer(record: dict[str, Any], lanes: dict[str, Any], demand: dict[str, Any]) -> dict[str, Any] | list[tuple[str, str, str]]:
    def said(key: str) -> Any:
        return demand.get(key, {}).get(record["component"], demand.get(key, {}).get("*"))

    handle, own = record["contract"], known(record)
    named = [entry for entry in lanes["contracts"] if any(a[0] == b[0] for a in own for b in known(entry))]  # step 5
    proved = [entry for entry in named if any(a == b for a in own for b in known(entry))]
    faults = []
    accept = said("accept")
    if accept is not None and not any(each in accept for each in [a[0] for a in own] + [entry["contract"] for entry in proved]):
        faults.append(("contract", "contract-not-accepted", handle))
    if not named:
        title, major = handle.split("@")
        majors = [int(each["contract"].split("@")[1]) for each in lanes["contracts"] if each["contract"].split("@")[0] == title]
        ahead = bool(majors) and all(int(major) > each for each in majors)
        faults.append(("contract", "contract-ahead" if ahead else "contract-not-declared", handle))
    elif not proved:
        faults.append(("digest", "contract-digest", handle))
    if faults:
        return faults
    asked, sm, adapters = said("lanes"), demand.get("sm"), demand.get("adapters", False)
    ranked = [*lanes["lanes"], *lanes["lanes_beyond_table"]]
    tried = [(lane, entry) for lane in ranked for entry in proved if lane in entry["lanes"] + entry["lanes_beyond_table"]]  # step 6
    why: list[set[str]] = []
    for lane, entry in tried:
        body = lane.split("+")[0]
        words = body.split("-")
        scaled = not (words[-1][0] == "w" and "a" in words[-1] and words[-1].replace("w", "", 1).replace("a", "", 1).isdigit())
        family = "-".join(words[: -2 if scaled else -1])
        floors = [entry["floors"][body], record["floors"].get(body, "none")]
        runs = all(floor == "none" or (sm is not None and sm >= floor) for floor in floors)
        fails = {"lane": asked not in (None, lane, body, family), "floor": not runs, "adapters": adapters and not entry["composes_lora"]}
        why.append({stage for stage, failed in fails.items() if failed})

    def listed(stage: str, places: list[int]) -> list[tuple[str, str, str]]:
        if stage == "lane":
            return [("lane", "lane-unavailable", asked or "any lane")]
        if stage == "floor":
            return [("floor", "floor-unmet", body) for body in dict.fromkeys(tried[at][0].split("+")[0] for at in places)]
        return [("adapters", "adapters-not-composed", decoder) for decoder in dict.fromkeys(tried[at][1]["decoder"] for at in places)]

    everywhere = list(range(len(tried)))
    alone = [fault for stage in ("lane", "floor", "adapters") if all(stage in each for each in why) for fault in listed(stage, everywhere)]
    if alone:  # step 7
        return alone
    left = everywhere
    for stage in ("lane", "floor", "adapters"):  # step 8
        kept = [at for at in left if stage not in why[at]]
        if not kept:
            return listed(stage, left)
        left = kept
    deciders = [
        next((by for by in (("lane", "demand"), ("floor", "device"), ("adapters", "decoder")) if by[0] in each), ("", "rank"))[1]
        for each in why
    ]
    rejected = [
        {"lane": tried[at][0], "decoder": tried[at][1]["decoder"], "decided_by": deciders[at]} for at in everywhere if at != left[0]
    ]
    lane, entry = tried[left[0]]
    return {
        "component": record["component"],
        "contract": entry["contract"],
        "lane": lane,
        "decoder": entry["decoder"],
        "rejected": rejected,
    }


# The vectors.


def _codes(vector: dict[str, Any]) -> set[str]:
    return {each["code"] for each in vector["expect"].get("violations", ())}


@pytest.mark.parametrize("name", VECTORS)
def test_the_product_answers_a_vector_as_expected(name: str) -> None:
    vector = VECTORS[name]
    assert answered(vector["artifact"], vector["lanes"], vector["demand"]) == vector["expect"], vector["description"]


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if not _codes(vector) & OF_READING])
def test_the_second_implementation_answers_a_vector_as_expected(name: str) -> None:
    vector = VECTORS[name]
    assert second_answer(vector["artifact"], vector["lanes"], vector["demand"]) == vector["expect"]


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_self_contained_and_its_documents_have_their_schema_and_digest(name: str) -> None:
    vector = VECTORS[name]
    assert list(vector) == ["description", "artifact", "lanes", "demand", "expect"]
    malformed = {each["object"] for each in vector["expect"].get("violations", ()) if each["code"] == "document-malformed"}
    for kind in ("artifact", "lanes", "demand"):
        if f"{kind}.json" not in malformed:
            validator(kind).validate(vector[kind])
    if "lanes.json" not in malformed:
        assert (vector["lanes"]["digest"] == digest_of(vector["lanes"])) is ("lanes-digest" not in _codes(vector)), digest_of(
            vector["lanes"]
        )
    expect = vector["expect"]
    if not expect["satisfied"]:
        assert expect["code"] == expect["violations"][0]["code"]
        assert expect["type"] == f"urn:tensorhub:refusal:{expect['code']}"


@pytest.mark.parametrize("name", [name for name in VECTORS if name.startswith("malformed-")])
def test_only_the_document_that_is_malformed_is_refused_by_its_reader(name: str) -> None:
    vector = VECTORS[name]
    refused = set()
    for kind, read in READERS.items():
        try:
            read(dumped(vector[kind]))
        except Refusal:
            refused.add(kind)
    in_the_comparison = name.startswith(("malformed-handle-", "malformed-lane-"))
    assert refused == (set() if in_the_comparison else {name.split("-")[1]})


def test_there_are_many_vectors_and_each_says_what_it_is_about_in_its_own_words() -> None:
    assert len(VECTORS) >= 60
    descriptions = [vector["description"] for vector in VECTORS.values()]
    assert len(set(descriptions)) == len(descriptions)
    documents = [dumped([vector["artifact"], vector["lanes"], vector["demand"]]) for vector in VECTORS.values()]
    assert len(set(documents)) == len(documents)


def test_every_code_that_a_comparison_can_give_is_in_a_vector() -> None:
    listed = tomllib.loads(Path(tensorhub_contracts.__file__).with_name("refusal_codes.toml").read_text("utf-8"))
    gate = {code for code, entry in listed.items() if entry["group"] == "gate"} - NOT_OF_A_COMPARISON
    covered = set().union(*map(_codes, VECTORS.values()))
    assert covered == gate | OTHER_CODES


def test_every_decider_and_several_components_are_in_a_vector() -> None:
    chosen = [component for vector in VECTORS.values() for component in vector["expect"].get("components", ())]
    assert {each["decided_by"] for component in chosen for each in component["rejected"]} == {"demand", "device", "decoder", "rank"}
    assert {len(vector["expect"].get("components", ())) for vector in VECTORS.values()} == {0, 1, 2, 3}


# Random cases: small universes, so that handles, digests and lanes meet.

HANDLES = st.sampled_from(["a.x@1", "a.x@2", "a.x@10", "a.y@1"])
DIGESTS = st.sampled_from(["sha256:" + "0" * 64, "sha256:" + "1" * 64])
BODIES = ["fp8-w8a16", "fp8-w8a8-dynamic", "q-w8a8", "q-r-w8a8-s"]
LANES = [f"{body}+{execution}" for body in BODIES for execution in ("eager", "compiled")]
FLOORS = st.sampled_from(["none", 80, 90])
COMPONENTS = st.sampled_from(["", "u", "v"])
OLDER = st.lists(st.builds(dict, contract=HANDLES, digest=DIGESTS), max_size=1)


def by_table(lanes: list[str]) -> dict[str, list[str]]:
    """Return lanes as a record has them: those of the hub's table, and those beyond it."""
    return {"lanes": [lane for lane in lanes if lane in TABLE], "lanes_beyond_table": [lane for lane in lanes if lane not in TABLE]}


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        facts = {"contract": draw(HANDLES), "digest": draw(DIGESTS), "decoder": f"m:D{number}", "distribution": "d", "version": "1"}
        taken = {lane for other in found if other["contract"] == facts["contract"] for lane in other["lanes"] + other["lanes_beyond_table"]}
        served = [lane for lane in draw(st.lists(st.sampled_from(LANES), unique=True, max_size=4)) if lane not in taken]
        floors = {body: draw(FLOORS) for body in dict.fromkeys(lane.split("+")[0] for lane in served)}
        told = {"composes_lora": draw(st.booleans()), "requires": [], "supersedes": draw(OLDER), "why": ""}
        found.append({**facts, **by_table(served), "floors": floors, **told})
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    records = []
    for name in draw(st.lists(COMPONENTS, unique=True, min_size=1, max_size=3)):
        facts = {
            "component": name,
            "contract": draw(HANDLES),
            "digest": draw(DIGESTS),
            "headers_digest": "sha256:" + "2" * 64,
            "tensors": 1,
            "units": 0,
        }
        floors = draw(st.dictionaries(st.sampled_from(BODIES), FLOORS, max_size=2))
        records.append({**facts, "floors": floors, "supersedes": draw(OLDER)})
    ranked = draw(st.permutations(LANES))
    lanes: dict[str, Any] = {"version": 1, "derivation": "tensorhub.execution-lanes@1", **by_table(ranked)}
    lanes |= {"contracts": draw(entries()), "excluded": [], "scan": {"distributions": 1, "damaged": 0, "plugins": 1}}
    lanes["digest"] = digest_of(lanes)
    named = st.sampled_from(["*", "*", *(record["component"] for record in records), "w"])
    demand = {
        "accept": draw(st.dictionaries(named, st.lists(HANDLES, max_size=4), max_size=2)),
        "lanes": draw(st.dictionaries(named, st.sampled_from(["fp8", "q", "q-r", *BODIES, *LANES]), max_size=2)),
        "sm": draw(st.sampled_from([None, 79, 80, 89, 90])),
        "adapters": draw(st.booleans()),
    }
    return {"version": 1, "tool": "t", "components": records}, lanes, demand


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_two_implementations_agree_on_random_cases(case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    artifact, lanes, demand = case
    assert answered(artifact, lanes, demand) == second_answer(artifact, lanes, demand)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_a_demand_is_written_and_its_repetitions_change_nothing(case: Any, random: Any) -> None:
    artifact, lanes, demand = case
    for handles in demand["accept"].values():
        random.shuffle(handles)
    again = {**demand, "accept": {name: handles * 2 for name, handles in demand["accept"].items()}}
    assert answered(artifact, lanes, again) == answered(artifact, lanes, demand)

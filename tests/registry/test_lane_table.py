"""The lane table and the floors: what ships, and every fault that is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tensorhub_contracts import RegistryError, parse_lane
from tensorhub_contracts.registry.registry import load_registry, parse_registry
from tests.support.registry_texts import Table, changed, contract, shipped, small, to_toml

BLOCKWISE = "hf.fp8-blockwise@1"
FLOORS = f"r.toml: contract[1] ({BLOCKWISE}).floors"

#: The bodies that the first images are built for, best first, with the weights that each computes with.
FIRST = {
    "fp8-w8a8-dynamic": ("F8_E4M3",),
    "nvfp4-w4a4-static": ("F4_E2M1",),
    "svdq-fp4-w4a4": ("F4_E2M1",),
    "svdq-int4-w4a4": ("I4",),
    "bf16-w16a16": ("BF16", "F16", "F32"),
    "fp8-w8a16": ("F8_E4M3",),
    "fp8-w8a32": ("F8_E4M3",),
}


def problems(tables: Table) -> tuple[str, ...]:
    with pytest.raises(RegistryError) as caught:
        parse_registry(to_toml(tables), name="r.toml")
    return caught.value.problems


def with_floors(floors: dict[str, Any]) -> Table:
    return changed(small(), lambda tables: contract(tables, BLOCKWISE).update(floors=floors))


def test_the_first_bodies_are_there_with_their_weights_and_in_their_order() -> None:
    lanes = load_registry().lanes
    assert {body: lanes[body].elements for body in FIRST} == FIRST
    assert [body for body in lanes if body in FIRST] == list(FIRST)


def test_ranks_are_unique_and_give_the_order() -> None:
    ranks = [lane.rank for lane in load_registry().lanes.values()]
    assert ranks == sorted(set(ranks))


def test_the_order_of_the_file_is_not_the_order_of_the_lanes() -> None:
    tables = shipped()
    random.Random(4).shuffle(tables["lane"])
    assert [each["body"] for each in tables["lane"]] != list(load_registry().lanes)
    assert list(parse_registry(to_toml(tables)).lanes.items()) == list(load_registry().lanes.items())


def test_executions_are_stated_for_each_body() -> None:
    eager_alone = {body for body, lane in load_registry().lanes.items() if lane.executions == ("eager",)}
    assert eager_alone == {"svdq-fp4-w4a4", "svdq-int4-w4a4"}
    assert {lane.executions for lane in load_registry().lanes.values()} == {("eager",), ("eager", "compiled")}


def test_a_body_says_in_a_sentence_what_it_is() -> None:
    for lane in load_registry().lanes.values():
        assert lane.body == lane.body.strip()
        assert lane.summary[0].isupper()
        assert lane.summary.endswith(".")


def test_every_contract_states_a_floor_for_each_body_that_its_weights_can_have() -> None:
    registry = load_registry()
    for handle, each in registry.contracts.items():
        assert each.floors, handle
        for body, floor in each.floors.items():
            assert each.element in registry.lanes[body].elements, (handle, body)
            assert floor == "none" or (type(floor) is int and 75 <= floor <= 130), (handle, body)


def test_bodies_of_16_bits_and_more_run_anywhere_and_the_others_do_not() -> None:
    """Upcast weights need no special matrix units; activations of 8 and 4 bits do."""
    least = {"w8a8": 89, "w4a4": 100}
    for handle, each in load_registry().contracts.items():
        for body, floor in each.floors.items():
            assert floor == least.get(parse_lane(body).activation, "none"), (handle, body)


def _lane(place: int, **facts: Any) -> Callable[[Table], None]:
    return lambda tables: tables["lane"][place].update(facts)


LANE_FAULTS = [
    pytest.param(_lane(1, body="fp8-w8a8-dynamic"), "lane[1] (fp8-w8a8-dynamic): ", "the same name or the same rank", id="body-twice"),
    pytest.param(_lane(3, rank=10), "lane[3] (svdq-int4-w4a4): ", "the same name or the same rank", id="rank-twice"),
    pytest.param(_lane(3, body="svdq-INT4-w4a4"), "lane[3] (svdq-INT4-w4a4).body: ", "such as fp8-w8a16", id="malformed"),
    pytest.param(_lane(3, body=""), "lane[3] ().body: ", "such as fp8-w8a16", id="empty"),
    pytest.param(_lane(3, body="svdq-int4"), "lane[3] (svdq-int4).body: ", "<weights>-<activation>[-<scale>]", id="family"),
    pytest.param(
        _lane(3, body="svdq-int4-w4a4+eager"), "lane[3] (svdq-int4-w4a4+eager).body: ", "<weights>-<activation>[-<scale>]", id="execution"
    ),
    pytest.param(_lane(3, executions=[]), "lane[3] (svdq-int4-w4a4).executions: ", "at least one, and none twice", id="no-execution"),
    pytest.param(
        _lane(3, executions=["eager", "eager"]), "lane[3] (svdq-int4-w4a4).executions: ", "at least one, and none twice", id="twice"
    ),
    pytest.param(_lane(3, elements=[]), "lane[3] (svdq-int4-w4a4).elements: ", "at least one, and none twice", id="no-element"),
    pytest.param(_lane(3, elements=["I4", "I4"]), "lane[3] (svdq-int4-w4a4).elements: ", "at least one", id="element-twice"),
    pytest.param(_lane(3, rank=-5), "lane[3] (svdq-int4-w4a4).rank: ", "1 or more", id="negative-rank"),
    pytest.param(_lane(3, executions=["jit"]), "lane[3].executions[0]: ", "jit", id="unknown-execution"),
    pytest.param(_lane(3, elements=["I4", "INT4"]), "lane[3] (svdq-int4-w4a4).elements: ", "INT4 is not an element", id="element"),
    pytest.param(_lane(3, rank="first"), "lane[3].rank: ", "int", id="rank-is-a-word"),
    pytest.param(_lane(3, colour="blue"), "lane[3].colour: ", "unknown key", id="unknown-key"),
    pytest.param(lambda tables: tables["lane"][3].pop("summary"), "lane[3]: ", "summary", id="missing-key"),
]


@pytest.mark.parametrize(("change", "path", "words"), LANE_FAULTS)
def test_a_faulty_lane_is_refused_with_its_path(change: Callable[[Table], None], path: str, words: str) -> None:
    found = [problem for problem in problems(changed(small(), change)) if problem.startswith(f"r.toml: {path}")]
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("floors", "problem"),
    [
        ({"fp8-w8a64": "none"}, f"{FLOORS}.fp8-w8a64: not a body of the lane table"),
        ({"fp8": "none"}, f"{FLOORS}.fp8: not a body of the lane table"),
        ({"fp8-w8a16+eager": "none"}, f"{FLOORS}.fp8-w8a16+eager: not a body of the lane table"),
        ({"FP8-w8a16": "none"}, f"{FLOORS}.FP8-w8a16: not a body of the lane table"),
        ({"int8-w8a16": "none"}, f"{FLOORS}.int8-w8a16: its weights are I8, and the element is F8_E4M3"),
        ({"bf16-w16a16": 80}, f"{FLOORS}.bf16-w16a16: its weights are BF16 or F16 or F32, and the element is F8_E4M3"),
        ({"fp8-w8a16": 0}, f"{FLOORS}.fp8-w8a16: a floor is a compute capability such as 89, or 'none'"),
        ({"fp8-w8a16": -89}, f"{FLOORS}.fp8-w8a16: a floor is a compute capability such as 89, or 'none'"),
    ],
)
def test_a_faulty_floor_is_refused_with_its_path(floors: dict[str, Any], problem: str) -> None:
    assert problems(with_floors(floors)) == (problem,)


@pytest.mark.parametrize("floor", ["None", "NONE", "", "89", 8.9, True, [89]])
def test_a_floor_is_a_whole_number_or_the_word_none_and_nothing_that_looks_like_one(floor: Any) -> None:
    (problem,) = problems(with_floors({"fp8-w8a16": floor}))
    assert problem.startswith("r.toml: contract[1].floors[")


def test_every_fault_of_floors_and_lanes_is_listed() -> None:
    tables = with_floors({"fp8-w8a64": 0, "int8-w8a16": -1})
    tables["lane"][3].update(executions=[], elements=["INT4"], rank=10)
    assert len(problems(tables)) == 2 + 2 + 3


def test_neither_floors_nor_lanes_change_a_digest() -> None:
    def change(tables: Table) -> None:
        tables["lane"] = [each for each in tables["lane"] if not each["body"].startswith("svdq-")]
        for place, each in enumerate(reversed(tables["lane"])):
            each.update(rank=500 + place, executions=["eager"], summary="Another sentence.")
        for each in tables["contract"]:
            each["floors"] = {body: 75 if floor == "none" else floor + 1 for body, floor in each["floors"].items()}

    registry, other = load_registry(), parse_registry(to_toml(changed(shipped(), change)))
    assert list(other.lanes) != list(registry.lanes)
    assert all(other.contracts[handle].floors != each.floors for handle, each in registry.contracts.items())
    assert {handle: other.digest(handle) for handle in other.contracts} == {
        handle: registry.digest(handle) for handle in registry.contracts
    }

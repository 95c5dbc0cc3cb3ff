"""What `make quick` chooses."""

from __future__ import annotations

import pytest
import quick


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["tensorhub_contracts/inspection/grouping.py"], ["tests/architecture", "tests/layouts", "tests/containers", "tests/reports"]),
        (["tensorhub_contracts/hub/verdict.py"], ["tests/architecture", "tests/satisfies", "tests/goldens"]),
        (["README.md"], ["tests/architecture", *quick.FAST]),
        (["tests/plugins/test_lanes.py"], ["tests/architecture", "tests/plugins/test_lanes.py"]),
    ],
)
def test_a_change_runs_the_tests_of_its_room(changed: list[str], chosen: list[str]) -> None:
    assert quick.choose(changed)[0] == chosen


def test_what_there_is_no_time_for_is_named() -> None:
    chosen, left = quick.choose(["decoders/tensorhub_decoders/converting/plan.py"])
    assert "tests/producing" in left
    assert "tests/producing" not in chosen


def test_every_folder_that_is_named_is_there() -> None:
    named = {*quick.SECONDS, *quick.ALWAYS, *quick.FAST, *(each for folders in quick.ROOMS.values() for each in folders)}
    assert [each for each in named if not (quick.ROOT / each).exists()] == []
    assert [room for room in quick.ROOMS if not list(quick.ROOT.glob(f"{room}*"))] == []


def test_every_test_folder_has_its_time() -> None:
    folders = {f"tests/{each.name}" for each in (quick.ROOT / "tests").iterdir() if any(each.glob("**/test_*.py"))}
    assert folders <= quick.SECONDS.keys()

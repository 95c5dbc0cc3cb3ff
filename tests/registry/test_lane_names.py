"""Lane names: the grammar of families, bodies and full lanes, and which name covers which lane."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorhub_contracts import Refusal, parse_lane
from tensorhub_contracts.registry.names import LaneName
from tensorhub_contracts.registry.registry import load_registry

FAMILIES = ["fp8", "bf16", "svdq-fp4", "svdq-int4", "a-b-c", "4"]
BODIES = {
    "fp8-w8a16": ("fp8", "w8a16", ""),
    "fp8-w8a8-dynamic": ("fp8", "w8a8", "dynamic"),
    "svdq-fp4-w4a4": ("svdq-fp4", "w4a4", ""),
    "svdq-fp4-w4a4-static": ("svdq-fp4", "w4a4", "static"),
    "bf16-w16a16": ("bf16", "w16a16", ""),
    "x-w99a99-1": ("x", "w99a99", "1"),
    "fp8-w8a8-w4a4": ("fp8", "w8a8", "w4a4"),
}
MALFORMED = [
    "", " ", "+", "-", "fp8 ", " fp8", "fp8 -w8a16", "fp8-w8a16 +eager", "fp8-w8a16+ eager",
    "FP8", "Fp8-w8a16", "fp8-W8A16", "fp8-w8a16+Eager", "fp8-w8a16+EAGER",
    "fp8-w8a16+", "fp8-w8a16+jit", "fp8-w8a16+eager+compiled", "fp8-w8a16++eager", "fp8-w8a16+eage", "fp8-w8a16+eagerly",
    "fp8+eager", "svdq-fp4+compiled", "+eager", "eager+", "fp8-w0a16+eager", "fp8-w8a0+eager", "fp8-w08a16+eager", "fp8-w100a16+eager",
    "fp8-w8a16-very-dynamic", "w8a16", "fp8-w08a16", "fp8-w0a16", "w8a16-fp8",
    "w8a16+eager", "-w8a16+eager", "fp8-w8a16-very-dynamic+eager",
    "-fp8", "fp8-", "fp8--w8a16", "fp8-w8a16-", "-fp8-w8a16", "fp8-w8a16--dynamic", "fp8-w8a16-dynamic-", "fp8-w8a16-+eager",
    "fp8_w8a16", "fp8.w8a16", "fp8/w8a16", "fp8@1", "fp8-w8a16*", "fp8-w8a16\0",
    "fp\u0668", "fp8-w\u0668a16", "fp8-w8a1\uff16", "fp\u00b2", "f\u0440\u04408", "\ufb00p8", "fp8\u2011w8a16",
    "fp8\n", "fp8-w8a16\n", "fp8-w8a16+eager\n", "\nfp8", "fp8-w8a16\r", "fp8-w8a16+eager\t", "fp8\nfp8",
]  # fmt: skip

WORD = st.from_regex(re.compile(r"[a-z0-9]{1,6}\Z", re.ASCII), fullmatch=True)
FAMILY_WORD = WORD.filter(lambda word: not re.fullmatch(r"w\d+a\d+", word))
BITS = st.integers(1, 99)
HAS_ACTIVATION = re.compile(r"[a-z0-9-]+-w[1-9][0-9]?a[1-9][0-9]?(-[a-z0-9]+)?", re.ASCII)


@pytest.mark.parametrize("text", FAMILIES)
def test_a_family_stands_alone(text: str) -> None:
    name = parse_lane(text)
    assert name == LaneName(text)
    assert (name.family, name.activation, name.scale, name.execution, name.body) == (text, "", "", "", "")
    assert str(name) == text


@pytest.mark.parametrize(("text", "parts"), BODIES.items())
def test_a_body_has_a_family_an_activation_and_perhaps_a_scale(text: str, parts: tuple[str, str, str]) -> None:
    name = parse_lane(text)
    assert (name.family, name.activation, name.scale) == parts
    assert (name.execution, name.body) == ("", text)
    assert str(name) == text


@pytest.mark.parametrize("execution", ["eager", "compiled"])
@pytest.mark.parametrize("body", BODIES)
def test_a_lane_is_a_body_with_an_execution(body: str, execution: str) -> None:
    name = parse_lane(f"{body}+{execution}")
    assert (name.body, name.execution) == (body, execution)
    assert (name.family, name.activation, name.scale) == BODIES[body]
    assert str(name) == f"{body}+{execution}"


@pytest.mark.parametrize("text", MALFORMED, ids=ascii)
def test_what_is_no_lane_is_refused_and_nothing_is_folded_or_trimmed(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_lane(text)
    (violation,) = caught.value.violations
    assert violation.code == "lane-malformed"
    assert violation.object == text
    assert violation.found == repr(text)
    assert "fp8-w8a16+eager" in violation.expected
    assert "tensorhub lanes" in violation.remedy


@given(
    st.lists(FAMILY_WORD, min_size=1, max_size=3).map("-".join),
    st.builds("w{}a{}".format, BITS, BITS),
    WORD | st.just(""),
    st.sampled_from(["", "eager", "compiled"]),
)
def test_the_parts_of_a_name_come_back_and_so_does_the_name(family: str, activation: str, scale: str, execution: str) -> None:
    text = f"{family}-{activation}" + (f"-{scale}" if scale else "") + (f"+{execution}" if execution else "")
    assert parse_lane(text) == LaneName(family, activation, scale, execution)
    assert str(parse_lane(text)) == text
    assert parse_lane(parse_lane(text).body) == LaneName(family, activation, scale)
    assert str(parse_lane(family)) == family


@given(st.text("fpw8a16-+eagrcomild\n A", max_size=20) | st.text(max_size=20))
def test_any_text_is_either_refused_or_comes_back_byte_for_byte(text: str) -> None:
    name, plus, execution = text.partition("+")
    words = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name, re.ASCII)
    body = HAS_ACTIVATION.fullmatch(name) and (not plus or execution in ("eager", "compiled"))
    family = not plus and not any(re.fullmatch("w[0-9]+a[0-9]+", word, re.ASCII) for word in name.split("-"))
    if words and (body or family):
        assert str(parse_lane(text)) == text
    else:
        with pytest.raises(Refusal) as caught:
            parse_lane(text)
        assert caught.value.codes == ("lane-malformed",)


COVERS = [
    ("fp8", ["fp8-w8a16+eager", "fp8-w8a16+compiled", "fp8-w8a8-dynamic+eager", "fp8-w8a32+compiled"]),
    ("svdq-fp4", ["svdq-fp4-w4a4+eager"]),
    ("fp8-w8a16", ["fp8-w8a16+eager", "fp8-w8a16+compiled"]),
    ("fp8-w8a8", []),
    ("fp8-w8a8-dynamic", ["fp8-w8a8-dynamic+eager"]),
    ("fp8-w8a8-static", []),
    ("fp8-w8a16+eager", ["fp8-w8a16+eager"]),
    ("fp8-w8a16+compiled", ["fp8-w8a16+compiled"]),
    ("svdq", []),
    ("fp4", []),
    ("fp", []),
]


@pytest.mark.parametrize(("asked", "wanted"), COVERS)
def test_a_name_covers_exactly_these_lanes(asked: str, wanted: list[str]) -> None:
    lanes = [
        "fp8-w8a8-dynamic+eager", "svdq-fp4-w4a4+eager", "svdq-int4-w4a4+eager", "bf16-w16a16+eager", "bf16-w16a16+compiled",
        "fp8-w8a16+eager", "fp8-w8a16+compiled", "fp8-w8a32+compiled", "int8-w8a16+eager",
    ]  # fmt: skip
    assert {lane for lane in lanes if parse_lane(asked).covers(parse_lane(lane))} == set(wanted)


def test_every_body_of_the_lane_table_is_a_body() -> None:
    for body, lane in load_registry().lanes.items():
        assert parse_lane(body).body == lane.body == body
        assert parse_lane(body).execution == ""
        for execution in lane.executions:
            full = parse_lane(f"{body}+{execution}")
            assert parse_lane(body).covers(full)
            assert parse_lane(parse_lane(body).family).covers(full)


def test_the_family_is_all_that_stands_before_the_activation() -> None:
    assert parse_lane("svdq-fp4-w4a4").family == "svdq-fp4"
    assert {body: parse_lane(body).family for body in load_registry().lanes}.items() >= {
        "fp8-w8a8-dynamic": "fp8", "nvfp4-w4a4-static": "nvfp4", "svdq-fp4-w4a4": "svdq-fp4", "svdq-int4-w4a4": "svdq-int4",
        "bf16-w16a16": "bf16", "fp8-w8a16": "fp8", "fp8-w8a32": "fp8",
    }.items()  # fmt: skip

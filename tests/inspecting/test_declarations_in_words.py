"""Declared values in messages: short, in ASCII, and from their beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts.inspection.declared.declaration_words import describe_declaration, write_value
from tests.support.trees import bf16, judge


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("fp8", '"fp8"'),
        ("f\u00fc\n", "'f\\xfc\\n'"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (0.5, "0.5"),
        ([1, 32], "[1, 32] (row groups of 32)"),
        ([128, 128], "[128, 128]"),
        ([1, 0], "[1, 0]"),
        ([1, True], "[1, True]"),
        ({"bits": 8}, "{'bits': 8}"),
    ],
)
def test_a_value_is_written_as_it_is(value: object, text: str) -> None:
    assert write_value(value) == text


def test_what_is_long_is_cut_at_its_end() -> None:
    cut = write_value("abc" * 40)
    assert (len(cut), cut[:7], cut[-3:]) == (80, '"abcabc', "...")
    assert write_value("x" * 78) == '"' + "x" * 78 + '"'
    described = describe_declaration({f"key{number}": "value" for number in range(40)})
    assert (len(described), described[:12], described[-3:]) == (160, 'key0="value"', "...")


def test_lists_of_modules_and_nulls_declare_no_layout() -> None:
    assert (
        describe_declaration({"quant_method": "fp8", "ignore": ["lm_head"], "modules_to_not_convert": None, "fmt": None})
        == 'quant_method="fp8"'
    )
    assert describe_declaration({"ignore": []}) == "nothing"


def test_what_is_no_declaration_is_cut_too(tmp_path: Path) -> None:
    (violation,) = judge(tmp_path, bf16("a.weight", 2, 2), {"quantization_config": ["abc"] * 90}).violations
    assert len(violation.found) == 80

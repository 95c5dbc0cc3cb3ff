"""What a hostile file makes of a refusal is bounded: how many violations there are, how long each is, and how much is read for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import Refusal, Violation, inspect
from tensorhub_contracts.checkpoints import header_diagnosis
from tensorhub_contracts.checkpoints.json_members import Members
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tensorhub_contracts.errors import MOST_CHARACTERS, MOST_VIOLATIONS
from tensorhub_contracts.strict_json import LARGEST_DOCUMENT, brief
from tests.support.checkpoint_files import write_checkpoint, write_raw
from tests.support.cli import tensorhub

UNLISTED = "violations-unlisted"

#: A violation is a handful of texts; a report of 10,000 of them is a few megabytes.
LONGEST = 4 * MOST_CHARACTERS


def violations(folder: Path, header: bytes, payload: int = 0) -> tuple[Violation, ...]:
    write_raw(folder / "model.safetensors", header, payload)
    found = inspect(folder).violations
    assert len(found) <= MOST_VIOLATIONS + 1
    assert max(len(str(each)) for each in found) < LONGEST
    return found


def entries(count: int, text: str) -> bytes:
    return ("{" + ",".join(f'"{number}":{text}' for number in range(count)) + "}").encode()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1", "header-entry"),
        ('{"dtype":"Q","shape":[],"data_offsets":[0,0]}', "dtype-unknown"),
        ('{"dtype":"F32","shape":[1],"data_offsets":[0,0]}', "offsets-size"),
        ('{"dtype":"U8","shape":[1],"data_offsets":[7,8]}', "offsets-overlap"),
    ],
)
@pytest.mark.parametrize("more", [0, 1, 20_000])
def test_as_many_violations_are_listed_as_the_bound_says(text: str, code: str, more: int, tmp_path: Path) -> None:
    count = MOST_VIOLATIONS + more + (code == "offsets-overlap")  # the first of those leaves a hole, and overlaps nothing
    found = violations(tmp_path, entries(count, text), 8)
    assert {each.code for each in found[1:MOST_VIOLATIONS]} == {code}
    rest = found[MOST_VIOLATIONS:]
    assert [each.code for each in rest] == [UNLISTED] * (more > 0 or code == "offsets-overlap")


def test_the_rest_of_a_header_that_is_hopeless_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    key = Members.key

    def counted(self: Members) -> str | None:
        read.append("")
        return key(self)

    monkeypatch.setattr(Members, "key", counted)
    violations(tmp_path, entries(10 * MOST_VIOLATIONS, "1"))
    assert len(read) == MOST_VIOLATIONS + 1


def test_a_name_that_repeats_without_end_is_named_once(tmp_path: Path) -> None:
    found = violations(
        tmp_path, b"{" + b",".join([b'"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}'] * (MOST_VIOLATIONS + 5)) + b"}", 1
    )
    assert [each.code for each in found] == ["header-duplicate-key", UNLISTED]


def test_metadata_without_end_is_bounded(tmp_path: Path) -> None:
    found = violations(tmp_path, b'{"__metadata__":' + entries(3 * MOST_VIOLATIONS, "1") + b"}")
    assert {each.code for each in found[:MOST_VIOLATIONS]} == {"header-metadata"}
    assert found[MOST_VIOLATIONS].code == UNLISTED


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("{" + ",".join(f'"{number}":1' for number in range(50_000)) + "}", id="fields"),
        pytest.param('{"shape":[' + ",".join(["{}"] * 50_000) + "]}", id="objects-for-a-shape"),
        pytest.param("[" + ",".join(["[]"] * 50_000) + "]", id="lists"),
    ],
)
def test_a_value_that_is_longer_than_any_is_refused_and_not_read(value: str, tmp_path: Path) -> None:
    (found,) = violations(tmp_path, f'{{"a":{value}}}'.encode())
    assert (found.code, found.object) == (UNLISTED, "model.safetensors")
    assert found.found.startswith("a value of more than 65,536 characters at character ")


def test_a_value_that_is_nested_without_end_is_refused_by_name(tmp_path: Path) -> None:
    (found,) = violations(tmp_path, ('{"a":{"dtype":{"a":' + "[" * 50_000 + "]" * 50_000 + "}}}").encode())
    assert (found.code, found.found) == ("header-json", "nested too deeply")


@pytest.mark.parametrize("escaped", [False, True])
def test_a_shape_of_very_many_dimensions_is_written_in_part(escaped: bool, tmp_path: Path) -> None:
    name = "\\u0061" if escaped else "a"
    ones = ",".join(["1"] * 100_000)
    twos = ones.replace("1", "2")
    (found,) = violations(tmp_path, f'{{"{name}":{{"dtype":"F32","shape":[{twos}],"data_offsets":[0,4]}}}}'.encode(), 4)
    assert found.code == "shape-overflow"
    assert found.found.startswith("F32 [2, 2, 2")
    assert found.found.endswith("2, ...] (100,000 dimensions)")
    write_raw(tmp_path / "model.safetensors", f'{{"{name}":{{"dtype":"F32","shape":[{ones}],"data_offsets":[0,4]}}}}'.encode(), 4)
    assert read_checkpoint(tmp_path).tensors["a"].shape == (1,) * 100_000  # strange, and sound


def test_a_name_of_a_megabyte_is_cut(tmp_path: Path) -> None:
    for character in ("x", "é", "\\ud800"):
        (found,) = violations(tmp_path, f'{{"{character * 1_000_000}":1}}'.encode())[:1]
        assert len(found.object) < 3 * MOST_CHARACTERS * len(character)


class Large(list[Any]):
    """A list that nobody may write out or walk over."""

    def __repr__(self) -> str:
        raise AssertionError

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


def test_a_value_is_written_without_writing_out_the_rest_of_it() -> None:
    assert brief(Large([1] * 1_000)) == ascii([1] * 1_000)[:77] + "..."
    assert brief("x" * 1_000) == ascii("x" * 1_000)[:77] + "..."
    assert brief({"a": Large([1] * 1_000)}).startswith("{'a': [1, 1")
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    assert len(brief(nested)) <= 80
    for value in (1, -0.5, None, True, "é\n", [1, "a", [None]], {}, {"a": [1]}):
        assert brief(value) == ascii(value)


def test_a_refusal_keeps_the_first_violations_and_counts_the_others() -> None:
    def many() -> Iterator[Violation]:
        for number in range(MOST_VIOLATIONS + 500):
            yield Violation(code="tensor-duplicate", object=str(number), expected="", found="")

    refusal = Refusal(many(), unlisted=7)
    assert (len(refusal.listed), refusal.unlisted, len(refusal.violations)) == (MOST_VIOLATIONS, 507, MOST_VIOLATIONS + 1)
    assert refusal.violations[-1].found == "507 more, which are not listed"
    assert Refusal(list(many())[:MOST_VIOLATIONS]).violations[-1].code == "tensor-duplicate"


def test_the_violations_of_all_shards_are_bounded_together(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_raw(tmp_path / f"model-{number:05}-of-00003.safetensors", entries(MOST_VIOLATIONS - 1, "1"), 0)
    found = inspect(tmp_path).violations
    assert len(found) == MOST_VIOLATIONS + 1
    assert found[-1].found == f"{2 * MOST_VIOLATIONS - 3:,} more, which are not listed"


@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json", "params.json"])
def test_a_configuration_file_that_is_larger_than_any_is_refused_unread(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a.weight": ("BF16", (4, 4))})
    (tmp_path / name).write_bytes(b"{}" + b" " * (LARGEST_DOCUMENT - 2))
    assert inspect(tmp_path).contract == "plain.bf16@1"
    with (tmp_path / name).open("r+b") as file:
        file.truncate(LARGEST_DOCUMENT + 1)
    (found,) = inspect(tmp_path).violations
    assert (found.code, found.object, found.found) == ("file-unreadable", name, f"{LARGEST_DOCUMENT + 1:,} bytes")


@pytest.mark.parametrize("depth", [99, 101, 988, 989, 5_000])
def test_a_declaration_that_is_nested_without_end_is_refused(depth: int, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a.weight": ("F8_E4M3", (4, 4))})
    nested = "[" * (depth - 2) + "]" * (depth - 2)
    (tmp_path / "config.json").write_text(f'{{"quantization_config": {{"quant_method": {nested}, "a": "[[[["}}}}')
    found = inspect(tmp_path).violations
    assert found
    assert ("config-json" in {each.code for each in found}) == (depth > 100)
    assert max(len(str(each)) for each in found) < LONGEST


@pytest.mark.parametrize("option", ["artifact", "image", "demand", "check"])
def test_a_document_that_is_larger_than_any_is_not_read(option: str, tmp_path: Path) -> None:
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text("{}")
    with large.open("wb") as file:
        file.truncate(10 * LARGEST_DOCUMENT)
    arguments = {
        "artifact": ("satisfies", large, "--image", small),
        "image": ("satisfies", small, "--image", large),
        "demand": ("satisfies", small, "--image", small, "--demand", large),
        "check": ("lanes", "--check", large),
    }
    done = tensorhub(*arguments[option])
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert f"expected at most {LARGEST_DOCUMENT:,} bytes" in done.err


def test_a_deep_document_is_refused_by_name(tmp_path: Path) -> None:
    deep, toml, small = tmp_path / "deep.json", tmp_path / "deep.toml", tmp_path / "small.json"
    deep.write_text('{"a": ' + "[" * 5_000 + "]" * 5_000 + "}")
    toml.write_text("a = " + "[" * 5_000 + "]" * 5_000)
    small.write_text(json.dumps({}))
    for arguments in (("satisfies", deep, "--image", small), ("lanes", "--check", deep), ("lanes", "--check", toml)):
        done = tensorhub(*arguments)
        assert (done.code, "Traceback" in done.err) == (1, False), done.err
        assert "document-malformed" in done.out + done.err


def test_what_stops_a_diagnosis_is_named_in_one_place() -> None:
    assert header_diagnosis.MOST_VIOLATIONS == MOST_VIOLATIONS


def one_byte_each(count: int, dtype: str, name: str) -> bytes:
    return json.dumps(
        {f"l.{place}.{name}": {"dtype": dtype, "shape": [1, 1], "data_offsets": [place, place + 1]} for place in range(count)}
        | {"head.weight": {"dtype": "BF16", "shape": [1, 1], "data_offsets": [count, count + 2]}}
    ).encode()


@pytest.mark.parametrize(
    ("dtype", "name", "code"),
    [("F8_E5M2", "weight", "weight-dtype"), ("I8", "weight", "tensor-unexplained"), ("F8_E4M3", "weight_scale_inv", "scale-orphan")],
)
def test_what_units_and_integers_are_wrong_in_is_counted_beyond_the_bound(dtype: str, name: str, code: str, tmp_path: Path) -> None:
    count = MOST_VIOLATIONS + 2_345
    found = violations(tmp_path, one_byte_each(count, dtype, name), count + 2)
    assert len(found) == MOST_VIOLATIONS + 1
    assert code in {each.code for each in found}
    assert found[-1].code == UNLISTED
    assert int(found[-1].found.partition(" ")[0].replace(",", "")) >= 2_345


def test_a_tree_of_thousands_of_kinds_of_units_is_no_model(tmp_path: Path) -> None:
    """Each kind would be judged against every contract."""
    entries, place = {}, 0
    for size in range(1, 5_000):
        entries[f"l.{size}.weight"] = {"dtype": "F8_E4M3", "shape": [1, size], "data_offsets": [place, place + size]}
        place += size
    (refused,) = violations(tmp_path, json.dumps(entries).encode(), place)
    assert refused.code == "layout-undescribed"
    assert "4,999 kinds" in refused.found

"""Workflow commands of GitHub Actions: read back as the runner reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection
from tensorhub_contracts.reports import writer
from tests.support.inspections import accepted, hostile, pipeline, refused, unreadable
from tests.support.trees import BLOCKWISE


@dataclass(frozen=True)
class Command:
    """A command as the runner understands it."""

    name: str
    properties: dict[str, str]
    message: str


def commands(*inspections: Inspection) -> list[Command]:
    """Write the commands and read each line back by the runner's rules: properties end at a comma or at `::`."""
    text = writer("github")(inspections)
    assert text.endswith("\n")
    found = []
    for line in re.split("\r\n|\r|\n", text[:-1]):  # what the runner takes for the end of a line
        matched = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
        assert matched, f"not a command: {line!r}"
        pairs = [each.partition("=") for each in matched[2].split(",")]
        assert all(equals for _, equals, _ in pairs), line
        found.append(Command(matched[1], {key: unescape(value, ":,") for key, _, value in pairs}, unescape(matched[3], "")))
    return found


def unescape(text: str, more: str) -> str:
    """Undo the escapes, the percent sign last."""
    assert not set(text) & {*"\r\n", *more}
    for character in ("\r", "\n", *more, "%"):
        text = text.replace(f"%{ord(character):02X}", character)
    return text


def test_accepted_is_a_notice(tmp_path: Path) -> None:
    (command,) = commands(accepted(tmp_path / "tree"))
    assert command.name == "notice"
    assert command.properties["title"] == BLOCKWISE
    assert command.message == f"{tmp_path}/tree is in {BLOCKWISE}, 5 units"


def test_refused_is_an_error_for_each_group_of_violations(tmp_path: Path) -> None:
    inspection = refused(tmp_path / "tree")
    transposed, missing = commands(inspection)
    assert transposed.name == missing.name == "error"
    assert transposed.properties == {"file": f"{tmp_path}/tree/model.safetensors", "title": "scale-grid-transposed"}
    assert missing.properties["title"] == "scale-missing"
    assert "model.layers.2.q_proj.weight_scale_inv and 2 more: expected [2, 3]" in transposed.message
    assert "found [3, 2]: the transposed grid." in transposed.message
    assert inspection.violations[0].remedy in transposed.message


def test_unreadable(tmp_path: Path) -> None:
    (command,) = commands(unreadable(tmp_path / "tree"))
    assert command.properties == {"file": f"{tmp_path}/tree/model.safetensors", "title": "file-empty"}


def test_a_pipeline_names_its_components(tmp_path: Path) -> None:
    notice, *errors = commands(*pipeline(tmp_path / "pipe"))
    assert "text_encoder" in notice.message
    assert {each.properties["file"] for each in errors} == {f"{tmp_path}/pipe/transformer/model.safetensors"}


def test_hostile_names_are_one_command_and_say_what_they_are(tmp_path: Path) -> None:
    inspection = hostile(tmp_path / "tree")
    (command,) = commands(inspection)
    assert command.properties["title"] == "scale-grid-transposed"
    for part in ("&<>\"']]>%0A::error::", ",:b.weight_scale_inv"):
        assert part in command.message


@pytest.mark.parametrize("name", ["100%", "%0A", "two\nlines", "a\r", "a:b", "a,b", "a::b", "title=x,y"])
def test_folders_with_any_name(tmp_path: Path, name: str) -> None:
    for command in commands(refused(tmp_path / name)):
        assert command.properties["file"] == str(tmp_path / name / "model.safetensors")
    (notice,) = commands(accepted(tmp_path / f"ok {name}"))
    assert f"ok {name} is in" in notice.message

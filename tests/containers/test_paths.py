"""Paths as text are spelled and split as pathlib does it, whose import an inspection spares."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.paths import folder_of, inside, is_folder, last_name, mode_of, plain_path
from tests.support.privileges import foreign_folder, without_privileges

STEPS = ("", ".", "..", "a", "b.c", " ", "ä")
PATHS = sorted(
    {root + "/".join(steps) for root in ("", "/", "//", "///", "./") for length in (1, 2, 3) for steps in product(STEPS, repeat=length)}
)


def test_every_path_is_spelled_as_pathlib_spells_it() -> None:
    assert len(PATHS) > 1000
    for path in PATHS:
        assert plain_path(path) == str(Path(path)) == plain_path(Path(path))
        assert folder_of(plain_path(path)) == str(Path(path).parent)
        assert last_name(path) == (Path(path).name or path)


@pytest.mark.parametrize("path", ["a", "/a", "a/b", "/a/b.c", "../a", "//a/b"])
def test_folder_and_name_make_the_path_again(path: str) -> None:
    assert folder_of(path) == str(Path(path).parent)
    assert inside(folder_of(path), last_name(path)) == path


@pytest.mark.parametrize("folder", ["", ".", "a", "/", "//", "/a", ".."])
def test_what_a_folder_holds_is_spelled_as_pathlib_spells_it(folder: str) -> None:
    assert inside(plain_path(folder), "config.json") == str(Path(folder) / "config.json")


def test_what_lies_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    found = {
        name: is_folder(str(tmp_path / name)) for name in ("folder", "file", "link", "broken", "circle", "absent", "file/below", "nul\0")
    }
    assert [name for name, folder in found.items() if folder] == ["folder", "link"]
    assert [name for name in found if mode_of(str(tmp_path / name))] == ["folder", "file", "link"]


def test_a_path_that_cannot_be_looked_at_raises() -> None:
    with foreign_folder() as folder:
        folder.chmod(0)
        with without_privileges(), pytest.raises(OSError, match="Permission denied"):
            mode_of(str(folder / "file"))


def test_a_name_that_no_file_can_have_is_one_where_nothing_lies(tmp_path: Path) -> None:
    assert mode_of(os.path.join(tmp_path, "a" * 300)) == 0


@pytest.mark.parametrize(
    "source", [None, 3, ["model.safetensors"], ("a", "b"), {"path": "x"}, object()], ids=lambda each: type(each).__name__
)
def test_a_source_of_another_kind_is_a_type_error_that_says_what_is_expected(source: Any) -> None:
    with pytest.raises(TypeError, match=f"a path, an open binary file, or the bytes of a file, not {type(source).__name__}"):
        inspect(source)
    inspect(b"")  # the control: bytes are a source, and refused for what they hold

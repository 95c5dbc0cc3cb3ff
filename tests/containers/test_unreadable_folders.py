"""A folder that nobody may list or enter is refused as one, whichever folder of a checkpoint it is: root is not asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.checkpoints.pipeline import weight_components
from tensorhub_contracts.commands.inspect_command import inspect_path
from tests.support.checkpoint_files import write_checkpoint, write_sparse
from tests.support.privileges import foreign_folder, without_privileges

TENSORS = {"a.weight": ("BF16", (4, 4))}


@contextmanager
def unreadable(mode: int, closed: str, write: Callable[[Path], object]) -> Iterator[Path]:
    """Write a tree in a folder, let the folder `closed` have a mode that its user has not, and give up all privileges."""
    with foreign_folder() as root:
        write(root)
        inspect(write_checkpoint(root / "other", TENSORS))  # what is imported late is imported as root
        (root / closed).chmod(mode)
        try:
            with without_privileges():
                yield root
        finally:
            (root / closed).chmod(0o755)


def single(root: Path) -> None:
    write_checkpoint(root / "tree", TENSORS, config={})


def sharded(root: Path) -> None:
    write_checkpoint(root / "tree", {**TENSORS, "b.weight": ("BF16", (4, 4))}, config={}, shards=2)


def pipeline(root: Path) -> None:
    write_checkpoint(root / "tree" / "unet", TENSORS, config={})
    (root / "tree" / "model_index.json").write_text(json.dumps({"_class_name": "P", "unet": ["diffusers", "U"]}))


def hub_cache(root: Path) -> None:
    write_checkpoint(root / "tree" / "snapshots" / "abc", TENSORS, config={})


def codes(inspection: Inspection) -> list[tuple[str, str]]:
    return [(each.code, each.found) for each in inspection.violations]


DENIED = "Permission denied"


@pytest.mark.parametrize("mode", [0o000, 0o711, 0o311])
@pytest.mark.parametrize("write", [single, sharded])
def test_a_tree_that_nobody_may_list(mode: int, write: Callable[[Path], object]) -> None:
    with unreadable(mode, "tree", write) as root:
        inspection = inspect(root / "tree")
        assert [each.path for each in inspect_path(root / "tree", "", None)] == [str(root / "tree")]
    assert codes(inspection) == [("folder-unreadable", DENIED)]
    assert inspection.violations[0].object == str(root / "tree")


@pytest.mark.parametrize("write", [single, sharded])
def test_a_tree_that_nobody_may_enter_is_refused_by_its_files(write: Callable[[Path], object]) -> None:
    with unreadable(0o644, "tree", write) as root:
        inspection = inspect(root / "tree")
    assert inspection.contract is None
    assert {code for code, _ in codes(inspection)} <= {"file-unreadable", "folder-unreadable"}
    assert {found for _, found in codes(inspection)} == {DENIED}


@pytest.mark.parametrize("mode", [0o000, 0o711])
def test_a_component_that_nobody_may_list(mode: int) -> None:
    with unreadable(mode, "tree/unet", pipeline) as root:
        component, listed = inspect(root / "tree", "unet"), weight_components(root / "tree")
        (by_command,) = inspect_path(root / "tree", "", None)
    assert listed == ("unet",)
    assert codes(component) == codes(by_command) == [("folder-unreadable", DENIED)]


@pytest.mark.parametrize("mode", [0o000, 0o644, 0o711])
def test_a_pipeline_that_nobody_may_read(mode: int) -> None:
    with unreadable(mode, "tree", pipeline) as root:
        inspections = [inspect(root / "tree", component) for component in ("", "unet", "absent")]
        inspections += inspect_path(root / "tree", "", None)
    sound = [each.contract for each in inspections if each.contract]
    assert sound == (["plain.bf16@1"] * 2 if mode == 0o711 else [])  # it may be entered, and what it lists is named in a file
    for inspection in inspections:
        assert {code for code, _ in codes(inspection)} <= {
            "folder-unreadable",
            "file-unreadable",
            "component-unknown",
            "component-required",
        }


@pytest.mark.parametrize("closed", [".", "tree"])
@pytest.mark.parametrize("component", ["", "unet"])
def test_a_parent_that_nobody_may_enter(closed: str, component: str) -> None:
    with unreadable(
        0o600, closed, lambda root: write_sparse((root / "tree").mkdir() or root / "tree" / "model.safetensors", TENSORS)
    ) as root:
        inspections = [inspect(root / "tree" / "below", component), inspect(root / "tree" / "model.safetensors", component)]
        inspections += inspect_path(root / "tree" / "model.safetensors", component, None)
    for inspection in inspections:
        assert codes(inspection) == [("folder-unreadable", DENIED)], inspection.violations


@pytest.mark.parametrize("closed", ["tree/snapshots", "tree/snapshots/abc"])
def test_a_hub_cache_that_nobody_may_look_into(closed: str) -> None:
    for mode in (0o000, 0o644, 0o711):
        with unreadable(mode, closed, hub_cache) as root:
            found = codes(inspect(root / "tree"))
        assert [code for code, _ in found] in (["folder-unreadable"], ["checkpoint-without-weights"])


def test_nothing_at_a_path_is_still_nothing(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="there is nothing at"):
        inspect_path(tmp_path / "absent", "", None)
    assert codes(inspect(tmp_path / "absent")) == [("checkpoint-not-found", "nothing at that path")]
    assert codes(inspect(tmp_path / ("x" * 300))) == [("checkpoint-not-found", "nothing at that path")]

"""The facts of an inspection as objects: how they show themselves, that they are their own, and what parts of them hold."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import tensorhub_contracts
from tensorhub_contracts import inspect
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.inspection.derived import part_of, renamed
from tensorhub_contracts.readable import Readable
from tests.support.checkpoint_files import shard_name, write_checkpoint, write_index, write_sparse
from tests.support.trees import BLOCKWISE, Tree, bf16, fp8_config, judge, unit

ROOMS = ("checkpoints", "registry", "inspection", "plugins")


def kinds(base: type = Readable) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_fact_has_the_one_repr_and_it_is_that_of_attrs() -> None:
    """One for each class would be written at every start of the command."""
    for room in ROOMS:
        for module in pkgutil.iter_modules([str(Path(tensorhub_contracts.__file__).parent / room)]):
            importlib.import_module(f"tensorhub_contracts.{room}.{module.name}")
    assert len({*kinds()}) > 30
    assert [kind.__name__ for kind in kinds() if "__repr__" in vars(kind)] == []

    @attrs.frozen
    class Unit:
        name: str
        layout: tuple[int, ...]

    @attrs.frozen(repr=False)
    class Same(Readable):
        name: str
        layout: tuple[int, ...]

    assert repr(Same("a", (1,))).partition("(")[2] == repr(Unit("a", (1,))).partition("(")[2] == "name='a', layout=(1,))"


def test_inspections_are_told_apart_as_objects_and_may_stand_in_a_set(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, unit("a", 256, 256), config=fp8_config())
    first, second = inspect(folder), inspect(folder)
    assert len({first, second, first.checkpoint, second.checkpoint, first.candidates, second.candidates}) == 6
    assert first != second


# Parts of a checkpoint.

SHARDED: Tree = {**unit("a", 256, 256), **unit("b", 128, 256), **bf16("c.weight", 8, 8), "steps": ("I64", (1,)), "other": ("I64", (2,))}


def test_a_part_holds_what_was_asked_for_with_its_scales_in_the_order_of_the_shards(tmp_path: Path) -> None:
    placement = {"a.weight": 3, "a.weight_scale_inv": 1, "b.weight": 2, "b.weight_scale_inv": 2, "c.weight": 4, "steps": 3, "other": 2}
    whole = judge(tmp_path, SHARDED, fp8_config(), shards=4, placement=placement)
    part = part_of(whole, ["steps", "a.weight", "steps"])
    assert (part.contract, part.unit_count, list(part.layouts)) == (BLOCKWISE, 1, ["a.weight"])
    checkpoint, groups = part.checkpoint, part.groups
    assert checkpoint is not None
    assert groups is not None
    assert {shard: list(header.tensors) for shard, header in checkpoint.headers.items()} == {
        "model-00001-of-00004.safetensors": ["a.weight_scale_inv"],
        "model-00003-of-00004.safetensors": ["steps", "a.weight"],
    }
    assert list(checkpoint.headers) == sorted(checkpoint.headers)
    assert set(checkpoint.shard_of) == {"steps", "a.weight", "a.weight_scale_inv"}
    assert ([*groups.geometry_of], [*groups.unquantized], [*groups.other]) == (["a.weight"], [], ["steps"])
    assert [*part_of(whole, ["c.weight"]).groups.unquantized] == ["c.weight"]  # type: ignore[union-attr]  # of a proved one
    with pytest.raises(KeyError):
        part_of(whole, ["nothing"])


def test_a_part_holds_once_what_the_whole_holds_twice(tmp_path: Path) -> None:
    first, second = shard_name(1, 2), shard_name(2, 2)
    write_sparse(tmp_path / first, {**bf16("shared.weight", 4, 8), **bf16("a.weight", 8, 8)})
    write_sparse(tmp_path / second, {**bf16("b.weight", 8, 8), **bf16("shared.weight", 8, 8)})
    write_index(tmp_path / "model.safetensors.index.json", {"a.weight": first, "b.weight": second, "shared.weight": second})
    whole = inspect(tmp_path)
    assert whole.checkpoint is not None
    assert (whole.contract, whole.checkpoint.held_twice) == ("plain.bf16@1", {"shared.weight": (first, second)})
    for names in (["a.weight"], ["shared.weight", "b.weight"]):
        checkpoint = part_of(whole, names).checkpoint
        assert checkpoint is not None
        assert checkpoint.held_twice == {}
        assert {name: geometry.shape for name, geometry in checkpoint.tensors.items()} == dict.fromkeys(names, (8, 8))


def test_no_part_of_what_was_refused_and_any_may_be_renamed(tmp_path: Path) -> None:
    refused = judge(tmp_path, SHARDED)
    with pytest.raises(Refusal):
        part_of(refused, ["c.weight"])
    moved = renamed(refused, "elsewhere")
    assert moved.checkpoint is not None
    assert (moved.path, moved.checkpoint.path, moved.violations) == ("elsewhere", "elsewhere", refused.violations)
    unread = inspect(write_checkpoint(tmp_path / "empty", {}, shards=0))
    assert (unread.checkpoint, renamed(unread, "elsewhere").path, renamed(unread, "elsewhere").checkpoint) == (None, "elsewhere", None)

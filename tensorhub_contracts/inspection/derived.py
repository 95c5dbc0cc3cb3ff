"""Inspections that follow from another one without a look at any file: of a part of a checkpoint, and of one that was renamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import attrs

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.header import Header
from tensorhub_contracts.inspection.result import Inspection

Key = TypeVar("Key")


def part_of(inspection: Inspection, names: Iterable[str]) -> Inspection:
    """Return a proved inspection as that of a checkpoint which holds some of the tensors alone.

    `names` are weights of units, whose other tensors come along, and tensors that belong to no unit. Files, offsets and
    configuration stay those of the whole checkpoint, so that a decoder reads of its files what the part holds. Raises
    `Refusal` if no contract was proved, and KeyError for a name that the checkpoint does not have.
    """
    checkpoint, groups = inspection.require().checkpoint, inspection.groups
    assert checkpoint is not None  # a proved contract has both
    assert groups is not None
    asked = dict.fromkeys(names)
    held = dict.fromkeys(tensor for name in asked for tensor in (name, *inspection.unit_tensors.get(name, {}).values()))
    headers = {shard: _part_of_header(checkpoint, shard, of_shard) for shard, of_shard in _by_shard(checkpoint, held).items()}
    return attrs.evolve(
        inspection,
        units_of=_grouped(inspection.layouts, asked),
        checkpoint=attrs.evolve(checkpoint, headers=headers, shard_of={name: checkpoint.shard_of[name] for name in held}, held_twice={}),
        groups=attrs.evolve(
            groups,
            quantized=_grouped(groups.geometry_of, asked),
            unquantized={name: groups.unquantized[name] for name in held if name in groups.unquantized},
            other={name: groups.other[name] for name in held if name in groups.other},
            markers={},
            shared={name: weights for name, weights in groups.shared.items() if name in held},
        ),
    )


def renamed(inspection: Inspection, path: str) -> Inspection:
    """Return the inspection of a checkpoint whose folder or file was renamed to `path`: not a byte of it has changed."""
    checkpoint = inspection.checkpoint
    moved = None if checkpoint is None else attrs.evolve(checkpoint, path=path)
    return attrs.evolve(inspection, path=path, checkpoint=moved)


def _by_shard(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names by their shards, both in the order of the headers."""
    held: dict[str, list[str]] = {}
    for name in names:
        held.setdefault(checkpoint.shard_of[name], []).append(name)
    return {shard: held[shard] for shard in checkpoint.headers if shard in held}


def _part_of_header(checkpoint: Checkpoint, shard: str, names: Iterable[str]) -> Header:
    header = checkpoint.headers[shard]
    tensors = {name: header.tensors[name] for name in names}
    return header.holding(tensors, [checkpoint.tensors[name] for name in tensors])


def _grouped(key_of: Mapping[str, Key], names: Iterable[str]) -> dict[Key, list[str]]:
    """Group names by their key, leaving out those that have none: as much work as there are names, whatever they are a part of."""
    groups: dict[Key, list[str]] = {}
    for name in names:
        if name in key_of:
            groups.setdefault(key_of[name], []).append(name)
    return groups

"""`inspect`: which contract a checkpoint's bytes are in, proved from headers alone, or every reason why they are in none."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Any, Final

from tensorhub_contracts.checkpoints.adapters import adapter_violation
from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.config_files import declared_in
from tensorhub_contracts.checkpoints.header import Header, Source
from tensorhub_contracts.checkpoints.header_metadata import declared_in_headers
from tensorhub_contracts.checkpoints.read import Progress, read_checkpoint
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.inspection.identify import identify
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.inspection.units.grouping import Grouping, group_tensors
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.registry import Registry, resolve

#: More than the rank of any adapter, whose tensors have it as one of their dimensions.
_HIGHEST_RANK: Final = 1024


def inspect(
    source: Source,
    component: str = "",
    *,
    contract: str | None = None,
    registry: Registry | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Find out which contract a checkpoint is in, from its headers alone, but for FP8 values without a scale: see `judge_values`.

    `source` is a folder, a `.safetensors` file, an open binary file or the bytes of one; `component` picks a
    sub-folder of a pipeline. With `contract`, the checkpoint is judged against exactly that handle. `registry` is by
    default the one of this installation, with the contracts that plugins own. Never raises for a bad checkpoint: the
    result lists what is wrong. Raises `Refusal` for a `contract` that is not in the registry.
    """
    registry = registry or installed_registry()
    wanted = resolve(contract, registry) if contract is not None else None
    collecting = gc.isenabled()
    gc.disable()  # 100,000 entries make no cycles, and tracing them would take a third of the time
    try:
        grouping = Grouping(registry.sidecar_names)
        try:
            checkpoint = read_checkpoint(source, component, progress=progress, visit=grouping.add)
        except Refusal as refusal:
            return refused(source, component, refusal, nearest=wanted.handle if wanted else None)
        # If a tensor is held twice, the grouping saw both copies, and only one counts.
        groups = group_tensors(checkpoint.tensors, registry.sidecar_names) if checkpoint.held_twice else grouping.finish()
        adapter = adapter_violation(checkpoint, _low_ranks(groups), on_disk=isinstance(source, str | os.PathLike))
        if adapter is not None:
            return refused(source, component, Refusal([adapter]), checkpoint=checkpoint)
        inspection = identify(checkpoint, registry, groups, wanted)
        if inspection.facts is not None and inspection.facts.whole_tree and inspection.accepted:
            from tensorhub_contracts.checkpoints.stored_bytes import tensor_bytes  # only for FP8 without scales
            from tensorhub_contracts.inspection.unexplained.stored_values import judge_values

            return judge_values(inspection, tensor_bytes(source, checkpoint), asked=wanted is not None)
        return inspection
    finally:
        if collecting:
            gc.enable()


def _low_ranks(groups: TensorGroups) -> list[str]:
    """Return the tensors that an adapter's could be: most quantized ones are too large on each side for its rank."""
    small = (names for geometry, names in groups.quantized.items() if min(geometry.shape, default=0) <= _HIGHEST_RANK)
    return [*groups.unquantized, *groups.other, *(name for names in small for name in names)]


def inspect_planned(
    headers: Mapping[str, Header],
    config: Mapping[str, Any],
    *,
    path: str,
    component: str = "",
    index_name: str = "",
    registry: Registry | None = None,
) -> Inspection:
    """Find out which contract files would be in that are not written yet, as `inspect` judges them when they are.

    `headers` maps the name of each shard to its header (`parse_header`), `config` is the content of `config.json`, the only
    file that can declare something here; `path`, `component` and `index_name` are what the result calls them. Raises
    ValueError for a tensor that stands in two headers.
    """
    registry = registry or installed_registry()
    shard_of: dict[str, str] = {}
    for shard, header in headers.items():
        twice = sorted(shard_of.keys() & header.tensors.keys())
        if twice:
            raise ValueError(f"{', '.join(twice)}: in {shard_of[twice[0]]} and in {shard}")
        shard_of.update(dict.fromkeys(header.tensors, shard))
    checkpoint = Checkpoint(
        path=path,
        component=component,
        headers=headers,
        shard_of=shard_of,
        declarations=(*declared_in(config), *declared_in_headers(headers)),
        config=config,
        index_name=index_name,
        extra_files=(),
        held_twice={},
        bytes_read=0,
    )
    groups = group_tensors(checkpoint.tensors, registry.sidecar_names)
    return identify(checkpoint, registry, groups, None)


def refused(
    source: Source, component: str, refusal: Refusal, *, nearest: str | None = None, checkpoint: Checkpoint | None = None
) -> Inspection:
    """Return the inspection of a checkpoint that was refused before its layout could be judged."""
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else str(getattr(source, "name", "(bytes)"))
    return Inspection(
        path=path,
        component=component,
        contract=None,
        digest=None,
        nearest=nearest or refusal.nearest,
        violations=refusal.violations,
        checkpoint=checkpoint,
    )

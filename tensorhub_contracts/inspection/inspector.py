"""`inspect`: which contract a checkpoint's bytes are in, proved from headers alone, or every reason why they are in none."""

from __future__ import annotations

import gc
from pathlib import Path

from tensorhub_contracts.checkpoints.header import Source
from tensorhub_contracts.checkpoints.read import Progress, read_checkpoint
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.inspection.grouping import Grouping, group_tensors
from tensorhub_contracts.inspection.identify import identify
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.registry import Registry, resolve


def inspect(
    source: Source | Path,
    component: str = "",
    *,
    contract: str | None = None,
    registry: Registry | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Find out which contract a checkpoint is in, from its headers alone.

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
        return identify(checkpoint, registry, groups, wanted)
    finally:
        if collecting:
            gc.enable()


def refused(source: Source | Path, component: str, refusal: Refusal, *, nearest: str | None = None) -> Inspection:
    """Return the inspection of a checkpoint that was refused before its layout could be judged."""
    path = str(source) if isinstance(source, str | Path) else str(getattr(source, "name", "(bytes)"))
    return Inspection(
        path=path,
        component=component,
        contract=None,
        digest=None,
        nearest=nearest or refusal.nearest,
        violations=refusal.violations,
    )

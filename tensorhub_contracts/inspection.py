"""Inspection: which contract a checkpoint's bytes are in, proved from headers alone, or every reason why they are in none."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path


import msgspec

from tensorhub_contracts.checkpoint import Checkpoint, Progress, read_checkpoint
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.exclusions import ExclusionReport
from tensorhub_contracts.header import Source
from tensorhub_contracts.registry import Registry, load_registry
from tensorhub_contracts.tensor_groups import TensorGroups
from tensorhub_contracts.unit_matching import UnitLayout


class Unit(msgspec.Struct, frozen=True):
    """One quantized module: the weight's name and the layout that was proved for it."""

    name: str
    layout: UnitLayout


class Inspection(msgspec.Struct, frozen=True, dict=True, eq=False):
    """The result of an inspection.

    `contract` is the handle that was proved and `digest` its digest, or None if the checkpoint is refused; then
    `violations` says why, all of it. `nearest` is the contract that the violations were judged against; `resembles`
    are the contracts that the bytes of all units look like, whatever is declared. `layouts` maps the name of each
    unit's weight to its layout, for the units that are in the judged contract. `unproved` pairs what headers cannot show with the units concerned (empty: all of them). `observations` yields the notes.
    """


    path: str
    component: str
    contract: str | None
    digest: str | None
    nearest: str | None
    resembles: tuple[str, ...]
    violations: tuple[Violation, ...]
    proved: tuple[str, ...]
    unproved: tuple[tuple[str, tuple[str, ...]], ...]
    layouts: Mapping[str, UnitLayout]
    checkpoint: Checkpoint | None
    groups: TensorGroups | None
    exclusions: ExclusionReport
    observations: Callable[[], Iterable[str]]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is worth a line and changes no verdict; worked out when it is first asked for."""
        return tuple(self.observations())

    @property
    def accepted(self) -> bool:
        """Whether a contract was proved."""
        return self.contract is not None

    @property
    def units(self) -> Iterator[Unit]:
        """The units in the judged contract, in the order of the headers."""
        return (Unit(name, layout) for name, layout in self.layouts.items())

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct codes of the violations, in order."""
        return tuple(dict.fromkeys(violation.code for violation in self.violations))

    def require(self) -> Inspection:
        """Return this inspection if a contract was proved; raise `Refusal` with all violations if not."""
        if self.contract is None:
            raise Refusal(self.violations, nearest=self.nearest)
        return self


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
    sub-folder of a pipeline. With `contract`, the checkpoint is judged against exactly that handle. Never raises for
    a bad checkpoint: the result lists what is wrong. Raises `Refusal` for a `contract` that is not in the registry.
    """
    from tensorhub_contracts.identification import identify
    from tensorhub_contracts.resolution import resolve

    registry = registry or load_registry()
    wanted = resolve(contract, registry) if contract is not None else None
    collecting = gc.isenabled()
    gc.disable()  # 100,000 headers entries make no cycles, and tracing them would take a third of the time
    try:
        try:
            checkpoint = read_checkpoint(source, component, progress=progress)
        except Refusal as refusal:
            return _unreadable(source, component, refusal, wanted.handle if wanted else None)
        return identify(checkpoint, registry, wanted)
    finally:
        if collecting:
            gc.enable()


def inspect_hf_fp8_blockwise(source: Source | Path, component: str = "") -> Inspection:
    """Prove that a checkpoint is in `hf.fp8-blockwise@1`, or raise `Refusal` with every reason why it is not."""
    return inspect(source, component, contract="hf.fp8-blockwise@1").require()


def _unreadable(source: Source | Path, component: str, refusal: Refusal, wanted: str | None) -> Inspection:
    path = str(source) if isinstance(source, str | Path) else str(getattr(source, "name", "(bytes)"))
    return Inspection(
        path=path,
        component=component,
        contract=None,
        digest=None,
        nearest=wanted,
        resembles=(),
        violations=refusal.violations,
        proved=(),
        unproved=(),
        layouts={},
        checkpoint=None,
        groups=None,
        exclusions=ExclusionReport(),
        observations=tuple,
    )

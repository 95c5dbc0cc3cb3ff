"""The result of an inspection: the contract that was proved, or everything that is wrong; what was shown and what not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

import attrs

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.errors import Refusal, Violation, is_unjudged
from tensorhub_contracts.inspection.account import Account, account_of
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.exclusions import ExclusionReport
from tensorhub_contracts.inspection.notes import notes
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.inspection.units.unit_matching import UnitLayout
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import Contract

#: What an inspection came to.
State = Literal["proved", "refused", "unjudged"]


@attrs.frozen(slots=False, repr=False)
class Unit(Readable):
    """One quantized module: the weight's name and the layout that was proved for it."""

    name: str
    layout: UnitLayout


@attrs.frozen(slots=False, repr=False, eq=False)
class Inspection(Readable):
    """The result of an inspection."""

    path: str
    #: The sub-folder of a pipeline, or empty.
    component: str
    #: The handle that was proved and its digest, or None if the checkpoint is refused.
    contract: str | None
    digest: str | None
    #: The contract that the checkpoint was judged against.
    nearest: str | None
    #: Why the checkpoint is refused: everything, not the first.
    violations: tuple[Violation, ...]
    #: What the headers prove, in sentences.
    proved: tuple[str, ...] = ()
    #: What headers cannot show, each with the units concerned (empty: all of them).
    not_provable: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: The names of the weights that have each layout, of the units that are in the judged contract.
    units_of: Mapping[UnitLayout, Sequence[str]] = attrs.field(factory=dict)
    #: What was read, and its tensors in groups; None if the container itself was refused.
    checkpoint: Checkpoint | None = None
    groups: TensorGroups | None = None
    #: The tensors of which a few values were read: of FP8 values that nothing scales and nothing declares.
    values_read: tuple[str, ...] = ()
    exclusions: ExclusionReport = attrs.field(factory=ExclusionReport)
    #: What the verdict rests on, and the facts of the judged contract.
    candidates: Candidates | None = None
    facts: Contract | None = None

    @property
    def resembles(self) -> tuple[str, ...]:
        """The contracts that the bytes of all units look like, whatever is declared, or else those of some units."""
        return self.candidates.resembles if self.candidates is not None else ()

    @property
    def state(self) -> State:
        """Whether a contract was proved, the checkpoint is refused for good, or something could not be read and nothing is known.

        What could not be read is no verdict: a checkpoint is `unjudged` if that is all that is wrong with it.
        """
        if self.contract is not None:
            return "proved"
        return "unjudged" if is_unjudged(self.violations) else "refused"

    @cached_property
    def account(self) -> Account | None:
        """Every tensor by what it is in the judged contract, or refused; None if the container itself was refused."""
        if self.candidates is None or self.facts is None:
            return None
        return account_of(self.candidates, self.facts, self.violations)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is worth a line and changes no verdict; worked out when it is first asked for."""
        if self.candidates is None or self.facts is None:
            return ()
        return tuple(notes(self.candidates, self.facts, self.exclusions, accepted=self.accepted))

    @cached_property
    def layouts(self) -> Mapping[str, UnitLayout]:
        """The layout of each unit in the judged contract, by the name of its weight."""
        return {name: layout for layout, names in self.units_of.items() for name in names}

    @property
    def unit_count(self) -> int:
        """How many units are in the judged contract."""
        return sum(map(len, self.units_of.values()))

    @property
    def accepted(self) -> bool:
        """Whether a contract was proved."""
        return self.contract is not None

    @property
    def units(self) -> Iterator[Unit]:
        """The units in the judged contract, those of one layout together."""
        return (Unit(name, layout) for name, layout in self.layouts.items())

    def tensors_of(self, unit: Unit) -> dict[str, str]:
        """Return the names of a unit's tensors by their role in the contract's form: `weight`, `scale`, …

        Optional tensors are there if the checkpoint has them.
        """
        if self.facts is None or self.checkpoint is None:
            return {}
        names = next(form for form in self.facts.form if form.name == unit.layout.form).names(unit.name)
        return {role: name for role, name in names.items() if name in self.checkpoint.shard_of}

    @cached_property
    def unit_tensors(self) -> Mapping[str, Mapping[str, str]]:
        """The tensors of each unit by role (see `tensors_of`), by the name of its weight."""
        return {unit.name: self.tensors_of(unit) for unit in self.units}

    @cached_property
    def sidecars(self) -> frozenset[str]:
        """The tensors that belong to units and are not their weights, and those that mark the checkpoint."""
        markers = self.groups.markers if self.groups is not None else ()
        return frozenset(name for unit, roles in self.unit_tensors.items() for name in roles.values() if name != unit).union(markers)

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct codes of the violations, in order."""
        return tuple(dict.fromkeys(violation.code for violation in self.violations))

    def require(self) -> Inspection:
        """Return this inspection if a contract was proved; raise `Refusal` with all violations if not."""
        if self.contract is None:
            raise Refusal(self.violations, nearest=self.nearest)
        return self

"""What is asked of an artifact and an image together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from tensorhub_contracts.documents import Positive, read_document
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.registry.names import LaneName, parse_handle, parse_lane

#: Stands for every component that is not named.
EVERY_COMPONENT: Final = "*"


@attrs.frozen
class Demand:
    """What a caller asks for. `*` stands for every component that is not named; one for which nothing is said may have any."""

    #: The contracts that are accepted for a component: a set, of which none is preferred.
    accept: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: A lane, a body or a family for a component.
    lanes: dict[str, str] = attrs.field(factory=dict)
    #: The compute capability of the device (90 is 9.0); None for a device without one or an unknown one: lanes without a floor run.
    sm: Positive | None = None
    #: Whether adapters will be composed with the weights.
    adapters: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse what a reader of JSON would: Python checks no types."""
        if self.sm is not None and (type(self.sm) is not int or self.sm < 1):
            raise ValueError(f"sm: a compute capability such as 90, or None, not {self.sm!r}")
        if type(self.adapters) is not bool:
            raise ValueError(f"adapters: True or False, not {self.adapters!r}")

    def accepted(self, component: str) -> tuple[str, ...] | None:
        """Return the contracts that are accepted for a component, or None if any is."""
        return self.accept.get(component, self.accept.get(EVERY_COMPONENT))

    def lane(self, component: str) -> LaneName | None:
        """Return the lane that is asked for a component, or None if any will do."""
        text = self.lanes.get(component, self.lanes.get(EVERY_COMPONENT))
        return None if text is None else parse_lane(text)


def read_demand(text: str | bytes, *, name: str = "demand.json") -> Demand:
    """Read a demand from JSON; raises `Refusal` (`document-malformed`) for what is not one."""
    remedy = "Write it as `tensorhub schema demand` says."
    return read_document(text, Demand, name=name, what="a demand (`tensorhub schema demand`)", remedy=remedy)


def demand_violations(demand: Demand) -> list[Violation]:
    """Return every handle and lane in a demand that is not well formed."""
    violations: list[Violation] = []
    for component, handles in demand.accept.items():
        for handle in handles:
            violations += _of_component(component, parse_handle, handle)
    for component, lane in demand.lanes.items():
        violations += _of_component(component, parse_lane, lane)
    return violations


def _of_component(component: str, parse: Callable[[str], Any], text: str) -> list[Violation]:
    named = "" if component == EVERY_COMPONENT else component
    try:
        parse(text)
    except Refusal as refusal:
        return [attrs.evolve(violation, component=named) for violation in refusal.violations]
    return []

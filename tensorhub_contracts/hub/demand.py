"""What is asked of an artifact and an image together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from tensorhub_contracts.documents import ComputeCapability, malformed, read_document
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.hub.demanded_lanes import parse_demanded_lane
from tensorhub_contracts.registry.names import LaneName, parse_handle

#: Stands for every component that is not named.
EVERY_COMPONENT: Final = "*"


@attrs.frozen
class Demand:
    """What a caller asks for. `*` stands for every component that is not named; one for which nothing is said may have any."""

    #: The contracts that are accepted for a component: a set, of which none is preferred.
    accept: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: A lane, a body or a family (`fp8`, `8bit`) for a component; case says nothing.
    lanes: dict[str, str] = attrs.field(factory=dict)
    #: The compute capability of the device (90 is 9.0); None for a device without one or an unknown one: lanes without a floor run.
    sm: ComputeCapability | None = None
    #: Whether adapters will be composed with the weights.
    adapters: bool = False

    def __attrs_post_init__(self) -> None:
        """Raise `Refusal` (`document-malformed`) for what a reader of JSON would refuse: Python checks no types."""
        faults = "; ".join(_faults(self))
        if faults:
            raise malformed("Demand", "the fields of a demand (`tensorhub schema demand`)", faults, "Make it of what the fields say.")

    def accepted(self, component: str) -> tuple[str, ...] | None:
        """Return the contracts that are accepted for a component, or None if any is."""
        return self.accept.get(component, self.accept.get(EVERY_COMPONENT))

    def lane(self, component: str) -> LaneName | None:
        """Return the lane that is asked for a component, or None if any will do."""
        text = self.lanes.get(component, self.lanes.get(EVERY_COMPONENT))
        return None if text is None else parse_demanded_lane(text)


def _faults(demand: Demand) -> Iterator[str]:
    accept: Any = demand.accept
    lanes: Any = demand.lanes
    if not isinstance(accept, Mapping) or not all(isinstance(each, str) for each in accept):
        yield f"accept: a mapping of components to handles, not {accept!r}"
    else:
        for component, handles in accept.items():
            if not isinstance(handles, tuple | list) or not all(isinstance(each, str) for each in handles):
                yield f"accept of {component!r}: a tuple of handles, not {handles!r}"
    if not isinstance(lanes, Mapping) or not all(isinstance(each, str) for pair in lanes.items() for each in pair):
        yield f"lanes: a mapping of components to one lane each, not {lanes!r}"
    if demand.sm is not None and (type(demand.sm) is not int or demand.sm < 10):
        yield f"sm: a compute capability such as 90, which is 9.0, or None, not {demand.sm!r}"
    if type(demand.adapters) is not bool:
        yield f"adapters: True or False, not {demand.adapters!r}"


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
        violations += _of_component(component, parse_demanded_lane, lane)
    return violations


def _of_component(component: str, parse: Callable[[str], Any], text: str) -> list[Violation]:
    named = "" if component == EVERY_COMPONENT else component
    try:
        parse(text)
    except Refusal as refusal:
        return [attrs.evolve(violation, component=named) for violation in refusal.violations]
    return []

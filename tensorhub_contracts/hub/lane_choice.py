"""Chooses the lane of a component: the best one that the demand, the device and the decoder all allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.hub.artifact import ComponentRecord
from tensorhub_contracts.hub.demand import Demand
from tensorhub_contracts.hub.matching import left_out
from tensorhub_contracts.hub.verdict import ComponentVerdict, RejectedLane
from tensorhub_contracts.lanes.image_lanes import DecoderLanes, ImageLanes
from tensorhub_contracts.registry.contract import Floor
from tensorhub_contracts.registry.names import LaneName, parse_lane


@attrs.frozen
class Candidate:
    """A lane of a decoder, with the floors of its body that must be met: the image's and the artifact's."""

    lane: str
    entry: DecoderLanes
    floors: tuple[Floor, ...]

    @property
    def body(self) -> str:
        """The lane without its execution."""
        return self.lane.partition("+")[0]


def choose_lane(
    record: ComponentRecord, entries: Sequence[DecoderLanes], image_lanes: ImageLanes, demand: Demand
) -> ComponentVerdict | list[Violation]:
    """Return the best lane that is asked for, runs on the device and composes what is asked, or what stands in the way.

    Each of lane, floor and adapters is judged by itself, so that everything that fails is listed. If each can be met
    and all together cannot, the first that fails after those before it is listed.
    """
    wanted = demand.lane(record.component)
    candidates = list(_candidates(record, entries, image_lanes))
    asked = [each for each in candidates if _is_asked(each, wanted)]
    runs = [each for each in candidates if _floors_met(each, demand)]
    composes = [each for each in candidates if _composes(each, demand)]
    violations: list[Violation] = []
    if not asked:
        violations.append(_lane_unavailable(record, wanted, candidates, image_lanes))
    if not runs:
        violations += _floors_unmet(candidates, demand)
    if not composes:
        violations += _adapters_not_composed(candidates)
    if violations:
        return violations
    running = [each for each in asked if each in runs]
    if not running:
        return list(_floors_unmet(asked, demand))
    possible = [each for each in running if each in composes]
    if not possible:
        return list(_adapters_not_composed(running))
    return _verdict(record, possible[0], candidates, wanted, demand)


def _candidates(record: ComponentRecord, entries: Iterable[DecoderLanes], image_lanes: ImageLanes) -> Iterator[Candidate]:
    """Yield the lanes of decoders, best first in the order that the image gives: those of the hub's table before those beyond it."""
    for lane in image_lanes.all_lanes:
        body = lane.partition("+")[0]
        for entry in entries:
            if lane in entry.all_lanes:
                stated = (entry.floors[body], *((record.floors[body],) if body in record.floors else ()))
                yield Candidate(lane, entry, stated)


def _is_asked(candidate: Candidate, wanted: LaneName | None) -> bool:
    return wanted is None or wanted.covers(parse_lane(candidate.lane))


def _floors_met(candidate: Candidate, demand: Demand) -> bool:
    return all(floor == "none" or (demand.sm is not None and demand.sm >= floor) for floor in candidate.floors)


def _composes(candidate: Candidate, demand: Demand) -> bool:
    return candidate.entry.composes_lora or not demand.adapters


def _floor(candidate: Candidate) -> str:
    highest = max((floor for floor in candidate.floors if floor != "none"), default=0)
    return f"sm_{highest} or above" if highest else "no floor"


def _device(demand: Demand) -> str:
    return "a device without a compute capability, or an unknown one" if demand.sm is None else f"sm_{demand.sm}"


def _lane_unavailable(
    record: ComponentRecord, wanted: LaneName | None, candidates: Sequence[Candidate], image_lanes: ImageLanes
) -> Violation:
    offered = ", ".join(dict.fromkeys(each.lane for each in candidates)) or "no lane"
    found = f"{offered}{left_out(record, image_lanes)}"
    return Violation(
        code="lane-unavailable",
        object=str(wanted or "any lane"),
        expected=f"a lane of the image that reads {record.contract}",
        found=found,
    )


def _floors_unmet(candidates: Iterable[Candidate], demand: Demand) -> Iterator[Violation]:
    bodies = {each.body: each for each in candidates}
    for body, candidate in bodies.items():
        yield Violation(code="floor-unmet", object=body, expected=_floor(candidate), found=_device(demand))


def _adapters_not_composed(candidates: Iterable[Candidate]) -> Iterator[Violation]:
    for decoder, entry in {each.entry.decoder: each.entry for each in candidates}.items():
        found = f"composes_lora = false for {entry.contract}"
        yield Violation(code="adapters-not-composed", object=decoder, expected="a decoder that composes adapters", found=found)


def _verdict(
    record: ComponentRecord, chosen: Candidate, candidates: Iterable[Candidate], wanted: LaneName | None, demand: Demand
) -> ComponentVerdict:
    rejected = tuple(_rejected(each, chosen, wanted, demand) for each in candidates if each != chosen)
    entry = chosen.entry
    return ComponentVerdict(
        record.component,
        entry.contract,
        entry.digest,
        record.headers_digest,
        chosen.lane,
        entry.decoder,
        entry.distribution,
        entry.version,
        rejected,
    )


def _rejected(candidate: Candidate, chosen: Candidate, wanted: LaneName | None, demand: Demand) -> RejectedLane:
    lane, decoder = candidate.lane, candidate.entry.decoder
    if not _is_asked(candidate, wanted):
        return RejectedLane(lane, decoder, "demand", f"{wanted} was asked for")
    if not _floors_met(candidate, demand):
        return RejectedLane(lane, decoder, "device", f"needs {_floor(candidate)}; found {_device(demand)}")
    if not _composes(candidate, demand):
        return RejectedLane(lane, decoder, "decoder", "composes no adapters")
    return RejectedLane(lane, decoder, "rank", f"{chosen.lane} comes before it")

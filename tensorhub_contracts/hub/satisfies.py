"""`satisfies`: whether an image can execute an artifact as a demand asks, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.hub.artifact import Artifact, ComponentRecord, record_artifact, require_all
from tensorhub_contracts.hub.demand import EVERY_COMPONENT, Demand, demand_violations
from tensorhub_contracts.hub.lane_choice import choose_lane
from tensorhub_contracts.hub.matching import contract_violations, decoders_of
from tensorhub_contracts.hub.verdict import ComponentVerdict, Verdict
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.lanes.image_lanes import ImageLanes
from tensorhub_contracts.plugins.installed import installed_registry


def satisfies(subject: Artifact | Inspection | Sequence[Inspection], image_lanes: ImageLanes, demand: Demand) -> Verdict:
    """Return which lane of an image each component of an artifact runs in, or raise `Refusal`.

    `subject` is the record of an artifact, an inspection, or the inspections of a pipeline's components. Judged in this
    order: the demand is well formed; container; layout; the contract is accepted and declared; its digest is equal; a
    lane; its floor; adapters. The refusal lists, for each component, everything that is wrong with its contract and
    digest, or else with each of lane, floor and adapters; its first violation is the earliest in the order. It is final:
    nothing changes if it is asked again. Raises ValueError for inspections that are none, or two of one component.
    """
    malformed = demand_violations(demand)
    if malformed:
        raise Refusal(malformed)
    artifact = _artifact(subject)
    violations = list(_unknown_components(artifact, demand))
    verdicts: list[ComponentVerdict] = []
    for record in artifact.components:
        judged = _judge(record, image_lanes, demand)
        if isinstance(judged, ComponentVerdict):
            verdicts.append(judged)
        else:
            violations += judged
    if violations:
        violations.sort(key=lambda violation: _STAGE_OF[violation.code])  # a stable sort: components keep their order
        raise Refusal(violations, nearest=_nearest(artifact, violations, image_lanes))
    return Verdict(1, True, image_lanes.digest, tuple(verdicts))


#: The codes of a comparison by stage, in the order of judgement.
_STAGES = (
    ("component-unknown",),
    ("contract-not-accepted", "contract-not-declared", "contract-ahead"),
    ("contract-digest",),
    ("lane-unavailable",),
    ("floor-unmet",),
    ("adapters-not-composed",),
)
_STAGE_OF: Final = {code: stage for stage, codes in enumerate(_STAGES) for code in codes}


def _artifact(subject: Artifact | Inspection | Sequence[Inspection]) -> Artifact:
    """Return the record of what was proved; raise `Refusal` for what was not, container faults before the others."""
    if isinstance(subject, Artifact):
        return subject
    inspections = (subject,) if isinstance(subject, Inspection) else tuple(subject)
    require_all(sorted(inspections, key=lambda inspection: inspection.accepted or inspection.checkpoint is not None))
    return record_artifact(inspections, installed_registry())


def _unknown_components(artifact: Artifact, demand: Demand) -> Iterator[Violation]:
    known = [record.component for record in artifact.components]
    for component in dict.fromkeys((*demand.accept, *demand.lanes)):
        if component != EVERY_COMPONENT and component not in known:
            listed = ", ".join(name or "(the root)" for name in known)
            yield Violation(
                code="component-unknown",
                object=component,
                expected=f"a component of the artifact: {listed}",
                found=component,
                remedy="Correct the demand.",
            )


def _judge(record: ComponentRecord, image_lanes: ImageLanes, demand: Demand) -> ComponentVerdict | list[Violation]:
    matching = decoders_of(record, image_lanes)
    violations = list(contract_violations(record, matching, image_lanes, demand))
    if not violations:
        chosen = choose_lane(record, matching.proved, image_lanes, demand)
        if isinstance(chosen, ComponentVerdict):
            return chosen
        violations = chosen
    return [attrs.evolve(violation, component=record.component) for violation in violations]


def _nearest(artifact: Artifact, violations: list[Violation], image_lanes: ImageLanes) -> str | None:
    """Return the newest contract of the image that has the name of the one that was refused, whatever its major, or None."""
    if violations[0].code == "component-unknown":
        return None
    refused = next(record for record in artifact.components if record.component == violations[0].component)
    name = refused.contract.partition("@")[0] + "@"
    majors = {entry.contract for entry in image_lanes.contracts if entry.contract.startswith(name)}
    return max(majors, key=lambda handle: int(handle.removeprefix(name)), default=None)

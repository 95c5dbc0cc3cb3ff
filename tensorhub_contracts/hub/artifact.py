"""The small record of a proved checkpoint that a hub stores: enough to compare it with an image, without the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from tensorhub_contracts._version import __version__
from tensorhub_contracts.documents import Count, Digest, NonEmpty, document_json, malformed, read_document
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.hub.demand import EVERY_COMPONENT
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.lanes.image_lanes import RecordedFloor, SupersededContract
from tensorhub_contracts.registry.names import parse_handle
from tensorhub_contracts.registry.registry import Registry


@attrs.frozen
class ComponentRecord:
    """One checkpoint: the contract that was proved, the digest of its headers, and how much it holds."""

    #: Its name in a pipeline, or empty.
    component: str
    contract: str
    digest: Digest
    headers_digest: Digest
    tensors: Count
    units: Count
    #: Those that the registry stated when it was proved.
    floors: dict[str, RecordedFloor]
    supersedes: tuple[SupersededContract, ...]


@attrs.frozen
class Artifact:
    """A proved checkpoint, or the proved components of a pipeline."""

    version: Literal[1]
    #: What proved them.
    tool: str
    components: NonEmpty[ComponentRecord]


def record_artifact(inspections: Sequence[Inspection], registry: Registry) -> Artifact:
    """Return the record of checkpoints that were all proved to be in a contract of `registry`.

    Raises `Refusal` with the violations of all that were not, and ValueError if there is none or if two are of one
    component.
    """
    require_all(inspections)
    return Artifact(1, f"tensorhub-contracts {__version__}", tuple(_component(inspection, registry) for inspection in inspections))


def require_all(inspections: Sequence[Inspection]) -> None:
    """Raise `Refusal` with the violations of every inspection that is refused, each with its component.

    Raises ValueError if there is no inspection or if two are of one component.
    """
    names = [inspection.component for inspection in inspections]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"one inspection of each component, and at least one, not {names}")
    refused = [inspection for inspection in inspections if not inspection.accepted]
    if refused:
        violations = (
            attrs.evolve(violation, component=inspection.component) for inspection in refused for violation in inspection.violations
        )
        raise Refusal(violations, nearest=refused[0].nearest)


def artifact_json(artifact: Artifact) -> str:
    """Return the record as JSON with two spaces of indentation, ended by a newline."""
    return document_json(artifact)


def read_artifact(text: str | bytes, *, name: str = "artifact.json") -> Artifact:
    """Read a record from JSON; raises `Refusal` (`document-malformed`, `handle-malformed`) for what is not one."""
    expected = "the record of an artifact (`tensorhub schema artifact`)"
    remedy = "Take the file that `tensorhub artifact` wrote."
    artifact = read_document(text, Artifact, name=name, what=expected, remedy=remedy)
    for component in artifact.components:
        parse_handle(component.contract)
    names = [each.component for each in artifact.components]
    if len(set(names)) < len(names):
        twice = ", ".join(sorted({each or "(the root)" for each in names if names.count(each) > 1}))
        raise malformed(name, "each component once", f"{twice} more than once", remedy)
    if EVERY_COMPONENT in names:
        raise malformed(name, "components with names of their own", f"{EVERY_COMPONENT!r}, which stands for every component", remedy)
    return artifact


def _component(inspection: Inspection, registry: Registry) -> ComponentRecord:
    assert inspection.contract is not None  # require_all has seen to it
    assert inspection.checkpoint is not None
    return ComponentRecord(
        component=inspection.component,
        contract=inspection.contract,
        digest=inspection.digest or "",
        headers_digest=inspection.checkpoint.headers_digest,
        tensors=inspection.checkpoint.tensor_count,
        units=inspection.unit_count,
        floors=dict(registry.contracts[inspection.contract].floors),
        supersedes=tuple(SupersededContract(each.handle, each.digest) for each in registry.superseded if each.by == inspection.contract),
    )

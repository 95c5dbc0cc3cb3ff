"""The small record of a proved checkpoint that a hub stores: enough to compare it with an image, without the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from tensorhub_contracts import __version__
from tensorhub_contracts.contract import Floor
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.handles import parse_handle
from tensorhub_contracts.image_lanes import SupersededContract
from tensorhub_contracts.inspection import Inspection
from tensorhub_contracts.registry import Registry


class ComponentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One checkpoint: the contract that was proved, the digest of its headers, and how much it holds.

    `component` is its name in a pipeline, or empty. `floors` are those that the registry stated when it was proved.
    """

    component: str
    contract: str
    digest: str
    headers_digest: str
    tensors: int
    units: int
    floors: dict[str, Floor]
    supersedes: tuple[SupersededContract, ...]


class Artifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proved checkpoint, or the proved components of a pipeline; `tool` is what proved them."""

    version: Literal[1]
    tool: str
    components: Annotated[tuple[ComponentRecord, ...], msgspec.Meta(min_length=1)]


def record_artifact(inspections: Sequence[Inspection], registry: Registry) -> Artifact:
    """Return the record of checkpoints that were all proved to be in a contract of `registry`.

    Raises `Refusal` with the violations of all that were not.
    """
    require_all(inspections)
    return Artifact(1, f"tensorhub-contracts {__version__}", tuple(_component(inspection, registry) for inspection in inspections))


def require_all(inspections: Sequence[Inspection]) -> None:
    """Raise `Refusal` with the violations of every inspection that is refused, each with its component."""
    refused = [inspection for inspection in inspections if not inspection.accepted]
    if refused:
        violations = (
            msgspec.structs.replace(violation, component=inspection.component)
            for inspection in refused
            for violation in inspection.violations
        )
        raise Refusal(violations, nearest=refused[0].nearest)


def artifact_json(artifact: Artifact) -> str:
    """Return the record as JSON with two spaces of indentation, ended by a newline."""
    return msgspec.json.format(msgspec.json.encode(artifact), indent=2).decode() + "\n"


def read_artifact(text: str | bytes, *, name: str = "artifact.json") -> Artifact:
    """Read a record from JSON; raises `Refusal` (`document-malformed`, `handle-malformed`) for what is not one."""
    expected = "the record of an artifact (`tensorhub schema artifact`)"
    remedy = "Take the file that `tensorhub artifact` wrote."
    try:
        artifact = msgspec.json.decode(text, type=Artifact)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refusal([Violation("document-malformed", name, expected, str(error), remedy)]) from error
    for component in artifact.components:
        parse_handle(component.contract)
    names = [each.component for each in artifact.components]
    if len(set(names)) < len(names):
        twice = ", ".join(sorted({name or "(the root)" for name in names if names.count(name) > 1}))
        raise Refusal([Violation("document-malformed", name, "each component once", f"{twice} twice", remedy)])
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

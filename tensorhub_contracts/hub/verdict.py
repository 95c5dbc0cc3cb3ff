"""The answer to a demand: which lane of which decoder each component runs in, and which ones were passed over."""

from __future__ import annotations

from typing import Literal

import attrs

from tensorhub_contracts.documents import document_json


@attrs.frozen
class RejectedLane:
    """A lane of the image that reads the contract and was not chosen."""

    lane: str
    decoder: str
    #: `demand`: another lane was asked for. `device`: it lacks the compute capability. `decoder`: it composes no adapters.
    #: `rank`: another comes first.
    decided_by: Literal["demand", "device", "decoder", "rank"]
    reason: str


@attrs.frozen
class ComponentVerdict:
    """What runs for one component. `contract` and `digest` are those of the decoder in the image."""

    component: str
    contract: str
    digest: str
    headers_digest: str
    lane: str
    decoder: str
    distribution: str
    version: str
    rejected: tuple[RejectedLane, ...]


@attrs.frozen
class Verdict:
    """An image satisfies an artifact."""

    version: Literal[1]
    satisfied: Literal[True]
    #: Identifies the lanes that it was judged by.
    lanes_digest: str
    components: tuple[ComponentVerdict, ...]


def verdict_json(verdict: Verdict) -> str:
    """Return a verdict as JSON with two spaces of indentation, ended by a newline."""
    return document_json(verdict)

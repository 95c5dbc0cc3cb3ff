"""What an image can execute, as a record that is written when it is built and read by a hub."""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import attrs

from tensorhub_contracts.documents import Count, Digest, HandleText, Positive, to_builtins
from tensorhub_contracts.registry.digests import canonical_json

DERIVATION: Final = "tensorhub.execution-lanes@1"

#: Why a decoder or a plugin is not part of an image's lanes.
ExclusionCode = Literal[
    "requirement-missing", "plugin-broken", "plugin-blocked", "contract-blocked", "lane-overridden"
]  # fmt: skip  # one line reads as one list


#: A floor in a record: a compute capability (89 is 8.9), or "none".
RecordedFloor = Positive | Literal["none"]


@attrs.frozen
class SupersededContract:
    """An older major that the contract of a decoder stands for, and the digest that proves it."""

    contract: HandleText
    digest: Digest


@attrs.frozen
class DecoderLanes:
    """One contract that one decoder of the image reads."""

    contract: str
    digest: Digest
    #: `module:qualname`.
    decoder: str
    distribution: str
    version: str
    #: Those of the hub's lane table, by their full names, best first.
    lanes: tuple[str, ...]
    #: Those that it does not have, best first.
    lanes_beyond_table: tuple[str, ...]
    #: The least compute capability of each of their bodies, or "none".
    floors: dict[str, RecordedFloor]
    composes_lora: bool
    requires: tuple[str, ...]
    supersedes: tuple[SupersededContract, ...]
    #: For people.
    why: str

    @property
    def all_lanes(self) -> tuple[str, ...]:
        """Every lane that it serves, those of the hub's table first."""
        return self.lanes + self.lanes_beyond_table


@attrs.frozen
class Excluded:
    """A decoder or a plugin that the lanes leave out."""

    #: `module:qualname` of a decoder, or what a plugin's entry point names.
    module: str
    code: ExclusionCode
    #: What is left out, where that is known.
    contract: str
    lanes: tuple[str, ...]
    #: For people.
    reason: str


@attrs.frozen
class ScanCount:
    """What the derivation looked at: distributions in all, those with damaged metadata, and plugins."""

    distributions: Count
    damaged: Count
    plugins: Count


@attrs.frozen
class ImageLanes:
    """The lanes of an image, with the decoders that they come from and what was left out."""

    version: Literal[1]
    derivation: str
    #: Those of the hub's lane table (`lanes.hub_table`), best first.
    lanes: tuple[str, ...]
    #: Those that it does not have, best first: a verdict takes one only if no lane of the table will do.
    lanes_beyond_table: tuple[str, ...]
    contracts: tuple[DecoderLanes, ...]
    excluded: tuple[Excluded, ...]
    #: Over everything but `why`, `reason` and `scan`: the same wherever the same decoders with the same requirements are installed.
    digest: str
    scan: ScanCount

    @property
    def all_lanes(self) -> tuple[str, ...]:
        """Every lane, best first: those of the hub's table before those beyond it."""
        return self.lanes + self.lanes_beyond_table


def lanes_facts(lanes: ImageLanes) -> dict[str, Any]:
    """Return what of an image's lanes is compared and digested: everything but free text, counts and the digest itself."""
    facts: dict[str, Any] = to_builtins(lanes)
    del facts["digest"], facts["scan"]
    for entry in facts["contracts"]:
        del entry["why"]
    for entry in facts["excluded"]:
        del entry["reason"]
    return facts


def canonical_bytes(lanes: ImageLanes) -> bytes:
    """Return the bytes that the digest of an image's lanes is taken over: canonical JSON of its facts."""
    return canonical_json(lanes_facts(lanes))


def lanes_digest(lanes: ImageLanes) -> str:
    """Return `sha256:…` over `canonical_bytes`."""
    return "sha256:" + hashlib.sha256(canonical_bytes(lanes)).hexdigest()

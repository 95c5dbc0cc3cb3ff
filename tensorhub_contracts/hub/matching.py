"""Which decoders of an image read the contract of a component: by handle and by digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.hub.artifact import ComponentRecord
from tensorhub_contracts.hub.demand import Demand
from tensorhub_contracts.lanes.image_lanes import DecoderLanes, ImageLanes
from tensorhub_contracts.registry.names import parse_handle
from tensorhub_contracts.registry.registry import load_registry


@attrs.frozen
class MatchingDecoders:
    """The decoders whose handle is that of a component, and among them those whose digest proves that it is the same layout."""

    named: tuple[DecoderLanes, ...]
    proved: tuple[DecoderLanes, ...]


def decoders_of(record: ComponentRecord, image_lanes: ImageLanes) -> MatchingDecoders:
    """Return the decoders of an image for a component.

    A contract is known by its handle with its digest, and by each superseded handle with the digest that was recorded
    for it. Record and decoder match if they share a handle, and prove it if they share both.
    """
    known = _known_as(record)
    handles = {handle for handle, _ in known}
    named = tuple(entry for entry in image_lanes.contracts if handles & {handle for handle, _ in _known_as(entry)})
    return MatchingDecoders(named, tuple(entry for entry in named if known & _known_as(entry)))


def contract_violations(
    record: ComponentRecord, matching: MatchingDecoders, image_lanes: ImageLanes, demand: Demand
) -> Iterator[Violation]:
    """Yield what is wrong with a component's contract: not accepted, not declared by a decoder, or another digest."""
    accepted = demand.accepted(record.component)
    handles = {handle for handle, _ in _known_as(record)} | {entry.contract for entry in matching.proved}
    if accepted is not None and not handles & set(accepted):
        remedy = "Accept this contract, or take an artifact in one that is accepted." + _conversion(record, accepted)
        yield Violation(
            code="contract-not-accepted",
            object=record.contract,
            expected=" or ".join(accepted) or "nothing",
            found=record.contract,
            remedy=remedy,
        )
    if not matching.named:
        yield _not_declared(record, image_lanes)
    elif not matching.proved:
        expected = " or ".join(dict.fromkeys(entry.digest for entry in matching.named))
        remedy = "Prove the artifact again with the registry of the image, or use an image whose registry is that of the artifact."
        yield Violation(
            code="contract-digest",
            object=record.contract,
            expected=f"{expected}, as the image reads it",
            found=record.digest,
            remedy=remedy,
        )


def _conversion(record: ComponentRecord, accepted: Iterable[str]) -> str:
    """Return a sentence on the command that makes an accepted contract of one, or nothing: only edges of the registry exist."""
    component = f" --component {record.component}" if record.component else ""
    for edge in load_registry().conversions:
        for handle in accepted:
            if record.contract in edge.source and handle in edge.to:
                if edge.kind == "producible":
                    return f" {handle} can be produced of it, with loss: `tensorhub produce SRC DST --to {handle}{component}`."
                return f" {handle} can be made of it: `tensorhub decode SRC DST --to {handle}{component}`."
    return ""


def _production(record: ComponentRecord, read: Iterable[str]) -> str:
    """Return a sentence on the command that makes a contract which the image reads of the unquantized original, or nothing."""
    component = f" --component {record.component}" if record.component else ""
    for handle in read:
        for edge in load_registry().conversions:
            if edge.kind == "producible" and handle in edge.to and record.contract not in edge.source:
                original = f"the original, if that is in {' or '.join(edge.source)}"
                return f" {handle} can be produced of {original}: `tensorhub produce ORIGINAL DST --to {handle}{component}`."
    return ""


def _known_as(each: ComponentRecord | DecoderLanes) -> set[tuple[str, str]]:
    return {(each.contract, each.digest), *((older.contract, older.digest) for older in each.supersedes)}


def _not_declared(record: ComponentRecord, image_lanes: ImageLanes) -> Violation:
    handle = parse_handle(record.contract)
    majors = [other.major for other in map(parse_handle, _handles(image_lanes)) if other.name == handle.name]
    found = f"decoders for {', '.join(_handles(image_lanes)) or 'nothing'}{left_out(record, image_lanes)}"
    expected = f"a decoder that reads {record.contract}"
    if majors and handle.major > max(majors):
        remedy = f"Use an image whose decoders are new enough for {record.contract}."
        return Violation(code="contract-ahead", object=record.contract, expected=expected, found=found, remedy=remedy)
    remedy = f"Use an image with a plugin that decodes {record.contract}; in the image, `tensorhub plugins` shows what is installed."
    remedy += _conversion(record, _handles(image_lanes)) or _production(record, _handles(image_lanes))
    return Violation(code="contract-not-declared", object=record.contract, expected=expected, found=found, remedy=remedy)


def left_out(record: ComponentRecord, image_lanes: ImageLanes) -> str:
    """Return a clause on what the image's lanes leave out and might have served a component, or nothing."""
    reasons = [f"{each.module} ({each.code}: {each.reason})" for each in image_lanes.excluded if each.contract in ("", record.contract)]
    return f"; left out: {'; '.join(reasons)}" if reasons else ""


def _handles(image_lanes: ImageLanes) -> Iterable[str]:
    return dict.fromkeys(entry.contract for entry in image_lanes.contracts)

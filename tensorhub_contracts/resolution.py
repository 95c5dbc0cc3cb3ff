"""Finds a contract by its handle: exactly, or through a recorded digest; never by likeness."""

from __future__ import annotations

import msgspec

from tensorhub_contracts.contract import Contract
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.handles import parse_handle
from tensorhub_contracts.registry import Registry


def resolve(text: str, registry: Registry, *, digest: str | None = None) -> Contract:
    """Return the contract with this handle.

    With `digest`, the contract must have exactly that digest. A superseded major resolves to its successor only for
    a caller who gives the digest that was recorded for it. Raises `Refusal`: `handle-malformed`, `contract-unknown`
    (with the nearest name), `contract-ahead` for a major that this registry does not have yet,
    `contract-superseded`, and `contract-digest` if the digests differ.
    """
    try:
        handle = parse_handle(text)
    except Refusal as refusal:
        raise _with_nearest(refusal, text, registry) from refusal
    if text in registry.contracts:
        found = registry.digest(text)
        if digest is not None and digest != found:
            remedy = "Whoever recorded the digest used another registry: compare the two, and do not read one layout as the other."
            raise Refusal([Violation("contract-digest", text, digest, found, remedy)], nearest=text)
        return registry.contracts[text]
    for each in registry.superseded:
        if each.handle == text:
            if digest == each.digest:
                return registry.contracts[each.by]
            expected = f"the digest that was recorded for it, {each.digest}"
            remedy = f"Prove the digest, or use {each.by}."
            raise Refusal([Violation("contract-superseded", text, expected, digest or "no digest", remedy)], nearest=each.by)
    majors = {other.major: other for other in map(parse_handle, registry.contracts) if other.name == handle.name}
    if majors and handle.major > max(majors):
        newest = str(majors[max(majors)])
        remedy = "Update tensorhub-contracts to a release whose registry has it."
        raise Refusal([Violation("contract-ahead", text, f"a major that this registry has, up to {newest}", text, remedy)], nearest=newest)
    raise _unknown(text, registry)


def _nearest(text: str, registry: Registry, cutoff: float) -> str | None:
    import difflib  # only for a typing mistake

    close = difflib.get_close_matches(text, registry.contracts, n=1, cutoff=cutoff)
    return close[0] if close else None


def _with_nearest(refusal: Refusal, text: str, registry: Registry) -> Refusal:
    """Suggest the handle that a malformed one is a slip of, if it is close to one."""
    nearest = _nearest(text, registry, cutoff=0.7)
    if nearest is None:
        return refusal
    malformed = refusal.violations[0]
    remedy = f"Did you mean {nearest}? `tensorhub contracts` lists all."
    return Refusal([msgspec.structs.replace(malformed, remedy=remedy)], nearest=nearest)


def _unknown(text: str, registry: Registry) -> Refusal:
    nearest = _nearest(text, registry, cutoff=0.0)
    remedy = f"Did you mean {nearest}? `tensorhub contracts` lists all." if nearest else "`tensorhub contracts` lists all."
    remedy += registry.unavailable_note
    return Refusal([Violation("contract-unknown", text, "a handle of the registry", text, remedy)], nearest=nearest)

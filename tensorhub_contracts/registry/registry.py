"""Finds a contract by its handle: exactly, or through a recorded digest; never by likeness."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import attrs

from tensorhub_contracts.compiled import FOLDER, read_source
from tensorhub_contracts.documents import structure
from tensorhub_contracts.errors import Refusal, RegistryError, Violation
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.compiled import compiled_registry
from tensorhub_contracts.registry.contract import (
    BookkeepingWords,
    Contract,
    ConversionEdge,
    ForeignMethod,
    LaneBody,
    Payload,
    ReferenceDequant,
    RegistryFile,
    SidecarName,
    Superseded,
)
from tensorhub_contracts.registry.names import parse_handle
from tensorhub_contracts.registry.sidecar_names import SidecarNames

SCHEMA: Final = 1


@attrs.frozen(slots=False, repr=False)
class Registry(Readable):
    """The contracts that this installation knows, with the sidecar names that tell layouts apart."""

    #: By handle.
    contracts: Mapping[str, Contract]
    sidecars: tuple[SidecarName, ...]
    payloads: tuple[Payload, ...]
    reference_dequants: tuple[ReferenceDequant, ...]
    #: The facts of each body of the lane table, best rank first.
    lanes: Mapping[str, LaneBody]
    conversions: tuple[ConversionEdge, ...]
    superseded: tuple[Superseded, ...]
    #: The handles that a decoder is installed for.
    decoded: frozenset[str]
    #: What the rule for integers that are no weights takes into account, and the methods that no contract describes.
    bookkeeping: BookkeepingWords = attrs.field(factory=BookkeepingWords)
    methods: tuple[ForeignMethod, ...] = ()
    #: A line for each plugin that might own or decode more and is not in use.
    unavailable: tuple[str, ...] = ()
    #: The suffixes of the sidecars that plugins own.
    owned_sidecars: frozenset[str] = frozenset()
    #: Digests that were asked for, or that are known since the registry was compiled.
    known_digests: dict[str, str] = attrs.field(factory=dict)

    @cached_property
    def sidecar_names(self) -> SidecarNames:
        """Which tensor is a sidecar, and of what, by the last segment of its name."""
        return SidecarNames(self.sidecars, self.payloads, self.contracts.values(), owned=self.owned_sidecars)

    @property
    def unavailable_note(self) -> str:
        """A sentence on the plugins that might have had what is missing and are not in use; empty if there are none."""
        return f" Plugins that might have it and are not in use: {'; '.join(self.unavailable)}." if self.unavailable else ""

    def digest(self, handle: str) -> str:
        """Return the digest of a contract of this registry; computed once."""
        if handle not in self.known_digests:
            from tensorhub_contracts.registry.digests import contract_digest  # hashlib takes its time

            self.known_digests[handle] = contract_digest(self.contracts[handle])
        return self.known_digests[handle]


def registry_path() -> str:
    """Return where `registry.toml` lies: inside the package in a wheel, at the repository's root in an editable install."""
    for folder in (FOLDER, os.path.dirname(FOLDER)):  # noqa: PTH120  # no Path is made on the way of a command that must be quick
        place = os.path.join(folder, "registry.toml")
        if os.path.isfile(place):  # noqa: PTH113  # the same
            return place
    raise RegistryError([f"registry.toml: neither in {FOLDER} nor beside it; the installation is incomplete"])


@functools.cache
def load_registry() -> Registry:
    """Return the registry that this distribution ships, read once a process."""
    path = registry_path()
    source = read_source(path)
    compiled = compiled_registry(source)
    if compiled is not None:
        return _registry(compiled.content, dict(compiled.digests))
    return _registry(_structure(source, os.path.basename(path)), {})  # noqa: PTH119  # the same


def parse_registry(text: str, *, name: str = "registry.toml") -> Registry:
    """Read a registry from TOML text and judge it.

    Raises `RegistryError` with every faulty table and its path: a syntax error, an unknown key, a wrong type, an
    unknown dtype, a handle listed twice, a sidecar that no `[[sidecar]]` describes, two handles with one digest.
    """
    from tensorhub_contracts.registry.check import digest_clashes, faults  # the shipped file is judged by the tests

    content = _structure(text, name)
    found = faults(content)
    if found:
        raise RegistryError(f"{name}: {fault}" for fault in found)
    registry = _registry(content, {})
    clashes = digest_clashes({handle: registry.digest(handle) for handle in registry.contracts})
    if clashes:
        raise RegistryError(f"{name}: {clash}" for clash in clashes)
    return registry


def _structure(text: str, name: str) -> RegistryFile:
    import tomllib  # the compiled form spares its time

    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError([f"{name}: {error}"]) from error
    if data.get("schema") != SCHEMA:
        raise RegistryError([f"{name}: schema: expected {SCHEMA}, found {data.get('schema')!r}"])
    return structure(data, RegistryFile, name=name)


def _registry(content: RegistryFile, digests: dict[str, str]) -> Registry:
    return Registry(
        contracts={contract.handle: contract for contract in content.contract},
        sidecars=content.sidecar,
        payloads=content.payload,
        reference_dequants=content.reference_dequant,
        lanes={lane.body: lane for lane in sorted(content.lane, key=lambda lane: lane.rank)},
        conversions=content.conversion,
        superseded=content.superseded,
        decoded=frozenset(contract.handle for contract in content.contract if contract.decoder == "shipped"),
        bookkeeping=content.bookkeeping,
        methods=content.method,
        known_digests=digests,
    )


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
            raise Refusal([Violation(code="contract-digest", object=text, expected=digest, found=found)], nearest=text)
        return registry.contracts[text]
    for each in registry.superseded:
        if each.handle == text:
            if digest == each.digest:
                return registry.contracts[each.by]
            expected = f"the digest that was recorded for it, {each.digest}"
            remedy = f"Prove the digest, or use {each.by}."
            raise Refusal(
                [Violation(code="contract-superseded", object=text, expected=expected, found=digest or "no digest", remedy=remedy)],
                nearest=each.by,
            )
    majors = {other.major: other for other in map(parse_handle, registry.contracts) if other.name == handle.name}
    if majors and handle.major > max(majors):
        newest = str(majors[max(majors)])
        raise Refusal(
            [
                Violation(
                    code="contract-ahead",
                    object=text,
                    expected=f"a major that this registry has, up to {newest}",
                    found=text,
                )
            ],
            nearest=newest,
        )
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
    return Refusal([attrs.evolve(malformed, remedy=remedy)], nearest=nearest)


def _unknown(text: str, registry: Registry) -> Refusal:
    nearest = _nearest(text, registry, cutoff=0.0)
    remedy = f"Did you mean {nearest}? `tensorhub contracts` lists all." if nearest else "`tensorhub contracts` lists all."
    remedy += registry.unavailable_note
    return Refusal(
        [Violation(code="contract-unknown", object=text, expected="a handle of the registry", found=text, remedy=remedy)], nearest=nearest
    )

"""The registry: reads `registry.toml`, judges it, and finds contracts by handle."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tensorhub_contracts.contract import Contract, Conversion, LaneBody, Leaf, Payload, ReferenceDequant, RegistryFile, Superseded
from tensorhub_contracts.errors import RegistryError
from tensorhub_contracts.registry_structure import structure

SCHEMA: Final = 1


class Registry(msgspec.Struct, frozen=True):
    """The contracts that this installation knows, with the leaf names that tell layouts apart.

    `lanes` maps each body of the lane table to its facts, best rank first. `decoded` holds the handles that a decoder
    is installed for, and `unavailable` a line for each plugin that might own or decode more and is not in use.
    `known_digests` fills up as digests are asked for.
    """

    contracts: Mapping[str, Contract]
    leaves: tuple[Leaf, ...]
    payloads: tuple[Payload, ...]
    reference_dequants: tuple[ReferenceDequant, ...]
    lanes: Mapping[str, LaneBody]
    conversions: tuple[Conversion, ...]
    superseded: tuple[Superseded, ...]
    decoded: frozenset[str]
    unavailable: tuple[str, ...] = ()
    known_digests: dict[str, str] = {}

    @property
    def unavailable_note(self) -> str:
        """A sentence on the plugins that might have had what is missing and are not in use; empty if there are none."""
        return f" Plugins that might have it and are not in use: {'; '.join(self.unavailable)}." if self.unavailable else ""

    def digest(self, handle: str) -> str:
        """Return the digest of a contract of this registry; computed once."""
        from tensorhub_contracts.digests import contract_digest  # hashlib takes its time, and most runs need one digest

        if handle not in self.known_digests:
            self.known_digests[handle] = contract_digest(self.contracts[handle])
        return self.known_digests[handle]


def registry_path() -> Path:
    """Return where `registry.toml` lies: inside the package in a wheel, at the repository's root in an editable install."""
    package = Path(__file__).parent
    for place in (package / "registry.toml", package.parent / "registry.toml"):
        if place.is_file():
            return place
    raise RegistryError([f"registry.toml: neither in {package} nor beside it; the installation is incomplete"])


@functools.cache
def load_registry() -> Registry:
    """Return the registry that this distribution ships, read once a process."""
    path = registry_path()
    return _registry(_structure(path.read_text("utf-8"), path.name))


def parse_registry(text: str, *, name: str = "registry.toml") -> Registry:
    """Read a registry from TOML text and judge it.

    Raises `RegistryError` with every faulty table and its path: a syntax error, an unknown key, a wrong type, an
    unknown dtype, a handle listed twice, a sidecar name that no leaf describes, two handles with one digest.
    """
    from tensorhub_contracts.registry_check import digest_clashes, faults  # the shipped file is judged by the tests

    content = _structure(text, name)
    found = faults(content)
    if found:
        raise RegistryError(f"{name}: {fault}" for fault in found)
    registry = _registry(content)
    clashes = digest_clashes({handle: registry.digest(handle) for handle in registry.contracts})
    if clashes:
        raise RegistryError(f"{name}: {clash}" for clash in clashes)
    return registry


def _structure(text: str, name: str) -> RegistryFile:
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError([f"{name}: {error}"]) from error
    if data.get("schema") != SCHEMA:
        raise RegistryError([f"{name}: schema: expected {SCHEMA}, found {data.get('schema')!r}"])
    return structure(data, RegistryFile, name=name)


def _registry(content: RegistryFile) -> Registry:
    return Registry(
        contracts={contract.handle: contract for contract in content.contract},
        leaves=content.leaf,
        payloads=content.payload,
        reference_dequants=content.reference_dequant,
        lanes={lane.body: lane for lane in sorted(content.lane, key=lambda lane: lane.rank)},
        conversions=content.conversion,
        superseded=content.superseded,
        decoded=frozenset(contract.handle for contract in content.contract if contract.decoder == "shipped"),
    )

"""The registry: reads `registry.toml`, judges it, and finds contracts by handle."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from tensorhub_contracts.contract import Contract, Conversion, Leaf, Payload, ReferenceDequant, RegistryFile, Superseded
from tensorhub_contracts.errors import RegistryError

SCHEMA: Final = 1


@frozen
class Registry:
    """The contracts that this installation knows, with the leaf names that tell layouts apart."""

    contracts: Mapping[str, Contract]
    leaves: tuple[Leaf, ...]
    payloads: tuple[Payload, ...]
    reference_dequants: tuple[ReferenceDequant, ...]
    conversions: tuple[Conversion, ...]
    superseded: tuple[Superseded, ...]
    _digests: dict[str, str] = field(factory=dict, init=False, eq=False, repr=False)

    def digest(self, handle: str) -> str:
        """Return the digest of a contract of this registry; computed once."""
        from tensorhub_contracts.digests import contract_digest  # hashlib takes its time, and most runs need one digest

        if handle not in self._digests:
            self._digests[handle] = contract_digest(self.contracts[handle])
        return self._digests[handle]


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
    return parse_registry(path.read_text("utf-8"), name=path.name)


def parse_registry(text: str, *, name: str = "registry.toml") -> Registry:
    """Read a registry from TOML text.

    Raises `RegistryError` with every fault and its path: a syntax error, an unknown key, a wrong type, an unknown
    dtype, a handle listed twice, a sidecar name that no leaf describes. That two handles share one digest is found by
    `tensorhub_contracts.registry_check.check_registry`, which the tests and the command line run.
    """
    from tensorhub_contracts.registry_check import faults
    from tensorhub_contracts.registry_structure import structure

    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError([f"{name}: {error}"]) from error
    if data.get("schema") != SCHEMA:
        raise RegistryError([f"{name}: schema: expected {SCHEMA}, found {data.get('schema')!r}"])
    content: RegistryFile = structure(data, RegistryFile, name=name)
    found = faults(content)
    if found:
        raise RegistryError(f"{name}: {fault}" for fault in found)
    return Registry(
        contracts={contract.handle: contract for contract in content.contract},
        leaves=content.leaf,
        payloads=content.payload,
        reference_dequants=content.reference_dequant,
        conversions=content.conversion,
        superseded=content.superseded,
    )

"""The registry as it is compiled when the distribution is built: the same facts, with their digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from tensorhub_contracts.compiled import compile_text, read_intact
from tensorhub_contracts.documents import decode_json
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import RegistryFile

#: The file's name, beside the package's modules.
COMPILED: Final = "registry.json"


@attrs.frozen(slots=False, repr=False)
class CompiledRegistry(Readable):
    """What `registry.toml` says, structured."""

    #: The text of the `registry.toml` that it was made from.
    source: str
    content: RegistryFile
    #: The digest of each contract, by handle.
    digests: Mapping[str, str]


def compile_registry(source: str) -> str:
    """Return the compiled form of a registry's TOML text; raises `RegistryError` for one that is not well formed."""
    import tomllib  # takes its time, and a reader needs it as little as the next

    from tensorhub_contracts.registry.registry import parse_registry  # which reads what is made here

    registry = parse_registry(source)
    digests = {handle: registry.digest(handle) for handle in registry.contracts}
    return compile_text(source, content=tomllib.loads(source), digests=digests)


def compiled_registry(source: str) -> CompiledRegistry | None:
    """Return the compiled form of the shipped registry, or None if there is none that is whole and was made from `source`."""
    data = read_intact(COMPILED)
    compiled = decode_json(data, CompiledRegistry) if data is not None else None
    return compiled if compiled is not None and compiled.source == source else None

"""The registry as it is compiled when the distribution is built: the same facts, with their digests, read in a fraction of TOML's time.

The compiled form holds the text that it was made from, and counts only beside that very text: it cannot be out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from tensorhub_contracts.documents import decode_json
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import RegistryFile

#: The file's name, beside the package's modules.
COMPILED: Final = "registry.json"


@attrs.frozen(repr=False)
class CompiledRegistry(Readable):
    """What `registry.toml` says, structured."""

    #: The text of the `registry.toml` that it was made from.
    source: str
    content: RegistryFile
    #: The digest of each contract, by handle.
    digests: Mapping[str, str]


def compile_registry(source: str) -> str:
    """Return the compiled form of a registry's TOML text; raises `RegistryError` for one that is not well formed."""
    import json
    import tomllib  # both take their time, and a reader needs neither

    from tensorhub_contracts.registry.registry import parse_registry  # which reads what is made here

    registry = parse_registry(source)
    digests = {handle: registry.digest(handle) for handle in registry.contracts}
    return json.dumps({"source": source, "content": tomllib.loads(source), "digests": digests}, ensure_ascii=False)


def read_compiled(data: bytes, source: str) -> CompiledRegistry | None:
    """Return what a compiled registry holds, or None if it is damaged or was not made from `source`."""
    compiled = decode_json(data, CompiledRegistry)
    return compiled if compiled is not None and compiled.source == source else None

"""What the metadata of headers declares: `__metadata__._quantization_metadata`, JSON in a string, as ComfyUI writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorhub_contracts.checkpoints.config_files import DeclarationSource, repeated_keys
from tensorhub_contracts.checkpoints.header import Header
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import JsonFault, parse_json

#: The key of the metadata, and where it stands, for messages.
METADATA_KEY: Final = "_quantization_metadata"
_WHERE: Final = f"__metadata__.{METADATA_KEY}"

#: More characters than the names of all modules of any model take; more are not read.
_LONGEST: Final = 16_000_000


def declared_in_headers(headers: Mapping[str, Header]) -> tuple[DeclarationSource, ...]:
    """Return what the metadata of all headers declares together: one source, or none.

    Shards that declare something name their own modules or all of them: their `layers` are put together. Raises `Refusal` with
    every text that is no strict JSON object, and for shards that contradict each other.
    """
    contents: dict[str, dict[str, Any]] = {}
    violations: list[Violation] = []
    for shard, header in headers.items():
        if METADATA_KEY in header.metadata:
            content, found = _parsed(header.metadata[METADATA_KEY])
            if found:
                expected = "a JSON object in which each key stands once"
                violations.append(
                    Violation(code="declaration-invalid", object=f"{shard}: {_WHERE}", expected=expected, found=found, shard=shard)
                )
            contents[shard] = content
    if not violations and len(contents) > 1:
        violations += _contradictions(contents)
    if violations:
        raise Refusal(violations)
    if not contents:
        return ()
    shard, content = next(iter(contents.items()))
    if len(contents) > 1:
        shard = f"{len(contents):,} headers"
        content = {**content, "layers": {name: layer for each in contents.values() for name, layer in each["layers"].items()}}
    return (DeclarationSource(f"{shard}: {_WHERE}", "header_metadata", content),)


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    """Return the object that a text holds, and what is wrong with the text if it holds none."""
    if len(text) > _LONGEST:
        return {}, f"{len(text):,} characters"
    try:
        content = parse_json(text.encode("utf-8", "surrogatepass"))
    except JsonFault as fault:
        return {}, str(fault)
    if not isinstance(content, dict):
        return {}, type(content).__name__
    repeated = list(repeated_keys(content))
    return content, f"{', '.join(map(ascii, repeated[:3]))} more than once" if repeated else ""


def _contradictions(contents: Mapping[str, dict[str, Any]]) -> list[Violation]:
    """Return what shards say differently: of a module that two of them name, and of everything beside the modules."""
    violations = []
    first_shard, first = next(iter(contents.items()))
    said: dict[str, Any] = {}
    for shard, content in contents.items():
        layers = content.get("layers")
        others = {key: value for key, value in content.items() if key != "layers"}
        if not isinstance(layers, dict):
            found = "no object `layers`"
        elif others != {key: value for key, value in first.items() if key != "layers"}:
            found = f"other keys, or other values, than in {first_shard}"
        else:
            differing = [name for name, layer in layers.items() if said.setdefault(name, layer) != layer]
            found = f"{differing[0]!a} declared in two ways" if differing else ""
        if found:
            expected = "the same in the metadata of every shard"
            violations.append(
                Violation(code="declaration-invalid", object=f"{shard}: {_WHERE}", expected=expected, found=found, shard=shard)
            )
    return violations

"""Where a checkpoint declares its layout: `config.json`, `hf_quant_config.json` and `params.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs

from tensorhub_contracts.checkpoints.files import exists_or_dangles, read_json_file
from tensorhub_contracts.checkpoints.paths import inside
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.strict_json import Duplicates, JsonFault, parse_json

#: Where a declaration may stand; contracts name it by this word.
DeclarationKind = Literal["quantization_config", "hf_quant_config", "params", "header_metadata"]

#: File, what steps to the object in it, and the kind of source that contracts know it by.
_PLACES: tuple[tuple[str, tuple[str, ...], DeclarationKind], ...] = (
    ("config.json", ("quantization_config",), "quantization_config"),
    ("config.json", ("text_config", "quantization_config"), "quantization_config"),
    ("hf_quant_config.json", ("quantization",), "hf_quant_config"),
    ("params.json", ("quantization",), "params"),
)


@attrs.frozen(repr=False)
class DeclarationSource(Readable):
    """One object that declares a layout; `where` names it in messages: `config.json: text_config.quantization_config`."""

    where: str
    kind: DeclarationKind
    content: Mapping[str, Any]


def read_declarations(folder: str) -> tuple[tuple[DeclarationSource, ...], dict[str, Any], int]:
    """Return every declaration in `folder`, the content of `config.json`, and how many bytes were read.

    A file that is absent or says `null` declares nothing. Raises `Refusal` with every file that is not a JSON object
    and every declaration that is not an object or repeats a key.
    """
    violations: list[Violation] = []
    contents: dict[str, dict[str, Any]] = {}
    size = 0
    for name in dict.fromkeys(place[0] for place in _PLACES):
        path = inside(folder, name)
        if not exists_or_dangles(path):
            continue
        try:
            text = read_json_file(path)
            size += len(text)
            content = parse_json(text, allow_non_finite=True)
        except Refusal as refusal:
            violations += refusal.violations
            continue
        except JsonFault as fault:
            violations.append(Violation(code="config-json", object=name, expected="strict UTF-8 JSON", found=str(fault), shard=path))
            continue
        if isinstance(content, dict):
            contents[name] = content
        else:
            violations.append(
                Violation(code="config-json", object=name, expected="a JSON object", found=type(content).__name__, shard=path)
            )
    sources = []
    for name, steps, kind in _PLACES:
        where = f"{name}: {'.'.join(steps)}"
        for key in _repeated(contents.get(name), steps):
            violations.append(
                Violation(
                    code="declaration-invalid",
                    object=f"{where}: {key}",
                    expected="each key once",
                    found="the key more than once",
                )
            )
        declared = _step(contents.get(name), steps)
        if declared is None:
            continue
        if isinstance(declared, dict):
            sources.append(DeclarationSource(where, kind, declared))
        else:
            violations.append(Violation(code="declaration-invalid", object=where, expected="an object", found=ascii(declared)[:80]))
    if violations:
        raise Refusal(violations)
    return tuple(sources), contents.get("config.json", {}), size


def declared_in(config: Mapping[str, Any]) -> tuple[DeclarationSource, ...]:
    """Return what the content of a `config.json` declares; what is no object declares nothing here."""
    places = ((f"{name}: {'.'.join(steps)}", kind, _step(config, steps)) for name, steps, kind in _PLACES if name == "config.json")
    return tuple(DeclarationSource(where, kind, declared) for where, kind, declared in places if isinstance(declared, dict))


def _step(content: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if not isinstance(content, dict):
            return None
        content = content.get(step)
    return content


def _repeated(content: Any, steps: tuple[str, ...]) -> Iterator[str]:
    """Keys that stand twice on the way to the declaration (the steps themselves), or anywhere inside it."""
    for step in steps:
        if isinstance(content, Duplicates) and step in content.repeated:
            yield step
        content = content.get(step) if isinstance(content, dict) else None
    yield from repeated_keys(content)


def repeated_keys(content: Any) -> Iterator[str]:
    """Yield the keys that stand more than once in an object, anywhere inside parsed JSON."""
    pending = [content]
    while pending:
        each = pending.pop()
        if isinstance(each, Duplicates):
            yield from each.repeated
        if isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list):
            pending += each

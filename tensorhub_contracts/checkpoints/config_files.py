"""Where a checkpoint declares its layout: configuration files, wherever in them, and the metadata of headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import attrs

from tensorhub_contracts.checkpoints.files import exists_or_dangles, read_json_file
from tensorhub_contracts.checkpoints.paths import inside
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.strict_json import Duplicates, JsonFault, brief, parse_json

#: Where a declaration may stand; contracts name it by this word.
DeclarationKind = Literal["quantization_config", "hf_quant_config", "params", "header_metadata", "other"]

#: The keys that declare a layout, by file, with the kind of source that contracts know them by. In `config.json` they count
#: at any depth: a model's text, vision or language part has a configuration of its own. `other` declares no contract, and is a
#: declaration all the same: what it says is never passed over.
_KEYS: Final[Mapping[str, Mapping[str, DeclarationKind]]] = {
    "config.json": {
        "quantization_config": "quantization_config",
        "quantization": "other",
        "compression_config": "other",
        "quantize_config": "other",
        "quant_config": "other",
    },
    "hf_quant_config.json": {"quantization": "hf_quant_config"},
    "params.json": {"quantization": "params"},
}

#: A file that is a declaration as a whole, where it lies.
_WHOLE_FILES: Final = ("quantize_config.json", "quant_config.json")

#: Keys of a header's metadata whose text declares a layout.
_METADATA_KEYS: Final = ("quantization_config", "quantization", "quant_config", "quant_method")

#: No configuration nests its parts deeper.
_DEPTH: Final = 6


@attrs.frozen(slots=False, repr=False)
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
    for name in (*_KEYS, *_WHOLE_FILES):
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
    sources: list[DeclarationSource] = []
    for name, content in contents.items():
        for place in _places(name, content):
            violations += place.faults()
            if isinstance(place.value, dict):
                sources.append(DeclarationSource(place.where, place.kind, place.value))
            elif place.kind == "other" and place.value is not None:
                sources.append(DeclarationSource(place.where, place.kind, {place.key: place.value}))
    if violations:
        raise Refusal(violations)
    return tuple(sources), contents.get("config.json", {}), size


def declared_in(config: Mapping[str, Any]) -> tuple[DeclarationSource, ...]:
    """Return what the content of a `config.json` declares; what is no object declares nothing here."""
    places = _places("config.json", config)
    return tuple(DeclarationSource(place.where, place.kind, place.value) for place in places if isinstance(place.value, dict))


def declared_in_metadata(metadata: Mapping[str, Mapping[str, str]]) -> tuple[DeclarationSource, ...]:
    """Return what the metadata of headers declares, by the name of the shard; shards that say the same are one source."""
    found: dict[tuple[str, str], DeclarationSource] = {}
    for shard, entries in metadata.items():
        for key in _METADATA_KEYS:
            text = entries.get(key, "")
            content = _declared_text(text) if text and (key, text) not in found else None
            if content is not None and _declares("other", content):
                declared = content if isinstance(content, dict) else {key: content}
                found[key, text] = DeclarationSource(f"{shard}: __metadata__.{key}", "other", declared)
    return tuple(found.values())


def _declared_text(text: str) -> Any:
    """Return what the text of a metadata entry says: what it holds as JSON, or the words themselves."""
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"), allow_non_finite=True)
    except JsonFault:
        return text


@attrs.frozen(slots=False, repr=False)
class _Place(Readable):
    """One place in a configuration that declares something: the file, the steps to it, and what stands there."""

    file: str
    steps: tuple[str, ...]
    kind: DeclarationKind
    value: Any
    #: The keys on the way to it, or in it, that stand twice.
    repeated: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.steps[-1] if self.steps else "content"

    @property
    def where(self) -> str:
        return f"{self.file}: {'.'.join(self.steps)}" if self.steps else self.file

    def faults(self) -> Iterator[Violation]:
        """Yield what makes a declaration of it that nobody can read."""
        for key in self.repeated:
            where = f"{self.where}: {key}"
            yield Violation(code="declaration-invalid", object=where, expected="each key once", found="the key more than once")
        if self.value is not None and self.kind != "other" and not isinstance(self.value, dict):
            yield Violation(code="declaration-invalid", object=self.where, expected="an object", found=brief(self.value))


def _places(file: str, content: Mapping[str, Any]) -> Iterator[_Place]:
    """Yield each place of a file that declares something: a key that says `null`, `false` or nothing at all does not."""
    if file in _WHOLE_FILES:
        yield _Place(file, (), "other", content, tuple(repeated_keys(content)))
        return
    pending: list[tuple[Mapping[str, Any], tuple[str, ...]]] = [(content, ())]
    while pending:
        holder, steps = pending.pop(0)
        twice = holder.repeated if isinstance(holder, Duplicates) else ()
        for key, value in holder.items():
            kind = _KEYS[file].get(key)
            repeated = (key,) if key in twice else ()
            if kind is not None and (repeated or _declares(kind, value)):
                declared = value if _declares(kind, value) else None
                yield _Place(file, (*steps, key), kind, declared, (*repeated, *repeated_keys(value)))
            elif kind is None and file == "config.json" and isinstance(value, dict) and len(steps) < _DEPTH:
                if repeated and key.endswith("config"):  # the one that is not kept may have declared something
                    yield _Place(file, (*steps, key, "quantization_config"), "quantization_config", None, repeated)
                pending.append((value, (*steps, key)))


def _declares(kind: DeclarationKind, value: Any) -> bool:
    if kind != "other":
        return value is not None
    return any(each not in (None, False) for each in value.values()) if isinstance(value, dict) else value not in (None, False, "", [])


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

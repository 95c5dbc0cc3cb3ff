"""Reads and writes documents: JSON that hubs exchange and TOML that registries are written in, as frozen classes.

Types are exact, unknown keys are refused, and every fault carries its path. Reading is msgspec's work, which knows attrs
classes; what it lets through, a key that no field has, is found here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import attrs
import msgspec

from tensorhub_contracts.errors import Refusal, RegistryError, Violation
from tensorhub_contracts.strict_json import LARGEST_DOCUMENT, Duplicates, JsonFault, is_text, parse_json

T = TypeVar("T")

#: So many faults of one document are named.
_MOST_FAULTS: Final = 1_000

#: A producer or a format, and a handle, which joins them: how both are spelled.
SEGMENT: Final = "[a-z0-9]+(?:-[a-z0-9]+)*"
HANDLE_PATTERN: Final = rf"^{SEGMENT}\.{SEGMENT}@[1-9][0-9]{{0,8}}$"

#: What fields of documents may hold, beside what a type says.
HandleText = Annotated[str, msgspec.Meta(pattern=HANDLE_PATTERN)]
Digest = Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
#: A compute capability as one number: 90 is 9.0. There has been none below 1.0.
ComputeCapability = Annotated[int, msgspec.Meta(ge=10)]
NonEmpty = Annotated[tuple[T, ...], msgspec.Meta(min_length=1)]

#: Dimensions as a registry writes them; `shape_patterns.parse_dimension` judges them, with a message that names the contract.
DimensionText = Annotated[
    str,
    msgspec.Meta(
        extra_json_schema={"pattern": r"^[a-z][a-z_]*(/[1-9][0-9]*)?(\^[1-9][0-9]*)?(\*[a-z][a-z_]*(/[1-9][0-9]*)?(\^[1-9][0-9]*)?)*$"}
    ),
]
DimensionNumber = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})]


def read_document(text: str | bytes, kind: type[T], *, name: str, what: str, remedy: str) -> T:
    """Return the document that JSON text holds.

    `what` says what is expected, for messages. Raises `Refusal` (`document-malformed`, with `name` as the object) for
    text that is not strict JSON, repeats a key, or is not a `kind`.
    """
    if len(text) > LARGEST_DOCUMENT:
        raise malformed(name, what, f"{len(text):,} bytes, and no document has more than {LARGEST_DOCUMENT:,}", remedy)
    try:
        content = parse_json(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        faults = list(islice(_repeated(content, "$"), _MOST_FAULTS))
        if not faults:
            document = msgspec.convert(content, kind)
            unknown = islice(_unknown_keys(content, document, "$"), _MOST_FAULTS)
            faults = [f"unknown field `{key}` - at `{path}`" for path, key in unknown]
        if faults:
            raise JsonFault("; ".join(faults))
        return document
    except (JsonFault, msgspec.ValidationError) as error:
        raise malformed(name, what, str(error), remedy) from error


def decode_json(text: bytes, kind: type[T]) -> T | None:
    """Return what JSON text of our own making holds, or None if it is damaged."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def malformed(name: str, what: str, found: str, remedy: str) -> Refusal:
    """Return the refusal of a document that is not one, or whose fields contradict each other."""
    return Refusal([Violation(code="document-malformed", object=name, expected=what, found=found, remedy=remedy)])


def document_json(document: Any) -> str:
    """Return a document as JSON with two spaces of indentation, ended by a newline: one spelling for one document."""
    return msgspec.json.format(msgspec.json.encode(to_builtins(document)), indent=2).decode() + "\n"


def compact_json(document: Any) -> str:
    """Return a document as JSON in one line, ended by a newline."""
    return msgspec.json.encode(to_builtins(document)).decode() + "\n"


def to_builtins(value: Any) -> Any:
    """Return a value with the fields of classes as dictionaries, in the order in which they are defined."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, dict):
        return {key: to_builtins(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(to_builtins, value))
    return {field.name: to_builtins(getattr(value, field.name)) for field in attrs.fields(type(value))}


def document_schema(kind: type, *, closed: bool) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a class; `closed` says that keys which no field has are refused."""
    schema = msgspec.json.schema(kind)
    if closed:
        for definition in schema["$defs"].values():
            if "properties" in definition:
                definition["additionalProperties"] = False
    return schema


def structure(data: Mapping[str, Any], kind: type[T], *, name: str) -> T:
    """Return TOML data as an instance of `kind`.

    Raises `RegistryError` with the faults of each table of the file, `name: path: what is wrong`: all keys that no field
    has, or else the first value of a table that has another type.
    """
    try:
        made = msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        faults = [fault for key, value in data.items() for fault in _faults_of(key, value, kind)]
        raise RegistryError(f"{name}: {fault}" for fault in faults or [_with_path(str(error), "")]) from error
    unknown = [f"{name}: {f'{path}.{key}'.removeprefix('$.')}: unknown key" for path, key in _unknown_keys(data, made, "$")]
    if unknown:
        raise RegistryError(unknown)
    return made


def _faults_of(key: str, value: Any, kind: type) -> list[str]:
    """Structure each table by itself, so that a fault in one hides none in another."""
    types = {field.name: field.type for field in attrs.fields(attrs.resolve_types(kind))}
    if key not in types:
        return [f"{key}: unknown key"]
    if isinstance(value, list):
        return [fault for place, table in enumerate(value) for fault in _faults([table], types[key], f"{key}[{place}]", "$[0]")]
    return _faults(value, types[key], key, "$")


def _faults(value: Any, kind: Any, path: str, root: str) -> list[str]:
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return [_with_path(str(error), path, root)]
    return [f"{path}{where.removeprefix(root)}.{key}: unknown key" for where, key in _unknown_keys(value, made, "$")]


def _with_path(message: str, path: str, root: str = "$") -> str:
    """Turn msgspec's `what is wrong - at `$.x[0]`` into `path.x[0]: what is wrong`."""
    what, _, where = message.partition(" - at `")
    inside = where.rstrip("`").removeprefix(root)
    return f"{(path + inside).lstrip('.') or 'top level'}: {what}"


def _unknown_keys(data: Any, made: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, key) for every key of the data that became no field of what was made of it."""
    if isinstance(data, dict):
        held = made if isinstance(made, Mapping) else {field.name: getattr(made, field.name) for field in attrs.fields(type(made))}
        for key, value in data.items():
            if key not in held:
                yield path, key
            elif isinstance(value, dict | list):
                yield from _unknown_keys(value, held[key], f"{path}.{key}")
    elif isinstance(data, list):
        for place, (value, each) in enumerate(zip(data, made, strict=True)):
            if isinstance(value, dict | list):
                yield from _unknown_keys(value, each, f"{path}[{place}]")


def _repeated(value: Any, path: str) -> Iterator[str]:
    """Yield every key that stands twice in its object, and every text that cannot be written as UTF-8."""
    if isinstance(value, Duplicates):
        yield from (f"{key!r} more than once in {path}" for key in value.repeated)
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _repeated(key, path)
            yield from _repeated(each, f"{path}.{key}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _repeated(each, f"{path}[{place}]")
    elif isinstance(value, str) and not is_text(value):
        yield f"a lone surrogate in {path}"

"""Structures TOML data into frozen classes; types are exact, unknown keys are refused and every error carries its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from tensorhub_contracts.errors import Refusal, RegistryError, Violation
from tensorhub_contracts.strict_json import Duplicates, JsonFault, is_text, parse_json

Document = TypeVar("Document")


def read_document(text: str | bytes, kind: type[Document], *, name: str, what: str, remedy: str) -> Document:
    """Return the document that JSON text holds.

    `what` says what is expected, for messages. Raises `Refusal` (`document-malformed`, with `name` as the object) for
    text that is not strict JSON, repeats a key, or is not a `kind`.
    """
    try:
        content = parse_json(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        faults = list(_repeated(content, "$"))
        if faults:
            raise JsonFault("; ".join(faults))
        return msgspec.convert(content, kind)
    except (JsonFault, msgspec.ValidationError) as error:
        raise Refusal([Violation(code="document-malformed", object=name, expected=what, found=str(error), remedy=remedy)]) from error


def document_json(document: msgspec.Struct) -> str:
    """Return a document as JSON with two spaces of indentation, ended by a newline: one spelling for one document."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def malformed(name: str, what: str, found: str, remedy: str) -> Refusal:
    """Return the refusal of a document whose fields contradict each other."""
    return Refusal([Violation(code="document-malformed", object=name, expected=what, found=found, remedy=remedy)])


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


T = TypeVar("T")


def structure(data: dict[str, Any], kind: type[T], *, name: str) -> T:
    """Return `data` as an instance of `kind`.

    Raises `RegistryError` with a line for each faulty table of the file, `name: path: what is wrong`.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        faults = [fault for key, value in data.items() for fault in _faults_of(key, value, kind)]
        raise RegistryError(f"{name}: {fault}" for fault in faults or [_with_path(str(error), "")]) from error


def _faults_of(key: str, value: Any, kind: type) -> list[str]:
    """Structure each table by itself, so that a fault in one hides none in another."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)} if issubclass(kind, msgspec.Struct) else {}
    if types and key not in types:
        return [f"{key}: unknown key"]
    if isinstance(value, list) and key in types:
        return [fault for place, table in enumerate(value) if (fault := _fault([table], types[key], f"{key}[{place}]", "$[0]"))]
    wanted = types[key] if types else kind.__args__[1]  # type: ignore[attr-defined]  # a dict type, whose values are tables
    fault = _fault(value, wanted, key, "$")
    return [fault] if fault else []


def _fault(value: Any, kind: Any, path: str, root: str) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _with_path(str(error), path, root)
    return ""


def _with_path(message: str, path: str, root: str = "$") -> str:
    """Turn msgspec's `what is wrong - at `$.x[0]`` into `path.x[0]: what is wrong`."""
    what, _, where = message.partition(" - at `")
    inside = where.rstrip("`").removeprefix(root)
    return f"{(path + inside).lstrip('.') or 'top level'}: {what}"

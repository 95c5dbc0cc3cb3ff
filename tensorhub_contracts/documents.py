"""Reads and writes the records that hubs exchange: strict JSON, exact types, one refusal for whatever else a file holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from tensorhub_contracts.errors import Refusal, Violation
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
        raise Refusal([Violation("document-malformed", name, what, str(error), remedy)]) from error


def document_json(document: msgspec.Struct) -> str:
    """Return a document as JSON with two spaces of indentation, ended by a newline: one spelling for one document."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def malformed(name: str, what: str, found: str, remedy: str) -> Refusal:
    """Return the refusal of a document whose fields contradict each other."""
    return Refusal([Violation("document-malformed", name, what, found, remedy)])


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

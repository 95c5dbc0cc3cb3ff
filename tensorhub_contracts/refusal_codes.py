"""What each refusal code means, from `refusal_codes.toml`: the closed list that every violation's code is from."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from tensorhub_contracts.compiled import compile_text, read_intact, read_source
from tensorhub_contracts.readable import Readable

#: The name of the compiled form, beside this module.
COMPILED: Final = "refusal_codes.json"

Group = Literal["handle", "container", "declaration", "layout", "unit", "gate", "plugin", "loading", "converting"]


@attrs.frozen(slots=False, repr=False)
class Explanation(Readable):
    """A code's title, what it means and what to do about it."""

    group: Group
    title: str
    meaning: str
    remedy: str
    #: Whether it says that something could not be read, and nothing of what it holds.
    unjudged: bool = False


@functools.cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanation of every code, in the order of the list."""
    source = read_source("refusal_codes.toml")
    return {code: Explanation(**facts) for code, facts in (_compiled(source) or _parsed(source)).items()}


def compile_codes(source: str) -> str:
    """Return the compiled form of the list's TOML text."""
    return compile_text(source, codes=_parsed(source))


def _parsed(source: str) -> dict[str, Any]:
    import tomllib  # the compiled form spares its time

    return tomllib.loads(source)


def _compiled(source: str) -> dict[str, Any] | None:
    """Return what the compiled form of the list says, or None if there is none that is whole and was made from `source`."""
    import json  # an inspection that finds nothing wrong asks for no remedy

    data = read_intact(COMPILED)
    compiled: dict[str, Any] = json.loads(data) if data is not None else {}
    return compiled.get("codes") if compiled.get("source") == source else None

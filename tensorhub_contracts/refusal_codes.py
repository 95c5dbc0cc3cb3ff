"""What each refusal code means, from `refusal_codes.toml`: the closed list that every violation's code is from."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Literal

import attrs

from tensorhub_contracts.readable import Readable

Group = Literal["handle", "container", "declaration", "layout", "unit", "gate", "plugin", "loading", "converting"]


@attrs.frozen(repr=False)
class Explanation(Readable):
    """A code's title, what it means and what to do about it."""

    group: Group
    title: str
    meaning: str
    remedy: str


@functools.cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanation of every code, in the order of the list."""
    import tomllib  # an inspection that finds nothing wrong asks for no remedy

    with open(os.path.join(os.path.dirname(__file__), "refusal_codes.toml"), "rb") as file:  # noqa: PTH120, PTH123  # no Path is made on the way of a command that must be quick
        return {code: Explanation(**facts) for code, facts in tomllib.load(file).items()}

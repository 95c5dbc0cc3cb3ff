"""What each refusal code means, from `refusal_codes.toml`: the closed list that every violation's code is from."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

Group = Literal["handle", "container", "declaration", "layout", "unit", "gate", "plugin", "loading", "converting"]


@attrs.frozen
class Explanation:
    """A code's title, what it means and what to do about it."""

    group: Group
    title: str
    meaning: str
    remedy: str


@functools.cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanation of every code, in the order of the list."""
    path = Path(__file__).with_name("refusal_codes.toml")
    return {code: Explanation(**facts) for code, facts in tomllib.loads(path.read_text("utf-8")).items()}

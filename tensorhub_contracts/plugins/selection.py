"""`TENSOR_CONTRACTS_PLUGINS`: which plugins may be used, which may not, and who decodes a contract that two registered."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import attrs

from tensorhub_contracts.errors import PluginSelectionError, Refusal
from tensorhub_contracts.plugins.shipped_only import VARIABLE, warn_of_old_name
from tensorhub_contracts.registry.names import parse_handle


@attrs.frozen
class PluginSelection:
    """What `TENSOR_CONTRACTS_PLUGINS` says.

    `allowed` and `blocked` are names of plugins or of distributions, normalized. With an empty `allowed` all are
    allowed, and shipped plugins always are. `blocked_contracts` are handles whose decoders are not used; `winners`
    maps a handle to the plugin whose decoder reads it where several claim one lane of it.
    """

    allowed: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    blocked_contracts: frozenset[str] = frozenset()
    winners: Mapping[str, str] = attrs.field(factory=dict)

    def is_blocked(self, names: Iterable[str], *, shipped: bool) -> bool:
        """Whether a plugin with these normalized names must not be imported."""
        held = set(names)
        return bool(held & self.blocked) or (bool(self.allowed) and not shipped and not held & self.allowed)

    @property
    def names(self) -> frozenset[str]:
        """Every plugin or distribution that is named."""
        return self.allowed | self.blocked | set(self.winners.values())


def normalized(name: str) -> str:
    """Return a name as all its spellings mean it: `My_Plugin` and `my.plugin` are `my-plugin` (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_selection(text: str | None = None) -> PluginSelection:
    """Read a selection, by default that of the environment variable.

    Items stand between commas: `NAME` allows a plugin and, with it, only those named; `-NAME` blocks one;
    `-HANDLE` blocks the decoders of a contract; `HANDLE=NAME` says who decodes a contract that several claim.
    Raises `PluginSelectionError` with every item that is not well formed.
    """
    if text is None:
        warn_of_old_name()
    items = [item.strip() for item in (os.environ.get(VARIABLE, "") if text is None else text).split(",")]
    allowed, blocked, contracts = set(), set(), set()
    winners: dict[str, str] = {}
    problems: list[str] = []
    for item in filter(None, items):
        handle, equals, winner = item.partition("=")
        if equals:
            handle, winner = handle.strip(), normalized(winner.strip())
            if not _is_handle(handle) or not winner or winners.get(handle, winner) != winner:
                problems.append(f"{item!r}: HANDLE=NAME, once for a contract")
            winners[handle] = winner
        elif item.startswith("-") and _is_handle(item[1:]):
            contracts.add(item[1:])
        elif _is_handle(item):
            problems.append(f"{item!r}: a contract; {item}=NAME says which plugin decodes it, -{item} that none does")
        elif item.startswith("-"):
            blocked.add(normalized(item[1:].strip()))
        else:
            allowed.add(normalized(item))
    problems += (f"{name!r}: both allowed and blocked" for name in sorted(allowed & blocked))
    problems += ("'-': names nothing" for name in blocked if not name)
    if problems:
        raise PluginSelectionError(f"{VARIABLE}: {problem}" for problem in problems)
    return PluginSelection(frozenset(allowed), frozenset(blocked), frozenset(contracts), winners)


def _is_handle(text: str) -> bool:
    try:
        parse_handle(text)
    except Refusal:
        return False
    return True

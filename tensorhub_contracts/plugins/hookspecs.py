"""What a plugin may provide: two hooks, called once a process on each plugin by itself.

A plugin is a module or an object that an entry point of the group `tensorhub.decoders` names. It states the version of
this interface that it was written for, `TENSORHUB_PLUGIN_API = 1`, and marks each hook with `hookimpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from tensorhub_contracts.registry.plugin_contracts import OwnedContracts

PLUGIN_API: Final = 1

hookspec = pluggy.HookspecMarker("tensorhub")
hookimpl = pluggy.HookimplMarker("tensorhub")


@hookspec
def provide_decoders() -> Iterable[Callable[..., Any]]:  # type: ignore[empty-body]  # a specification has no body
    """Return the functions that `implements_contract` decorates."""


@hookspec
def provide_contracts() -> OwnedContracts:  # type: ignore[empty-body]  # a specification has no body
    """Return the contracts that this plugin owns, from `read_contracts`."""

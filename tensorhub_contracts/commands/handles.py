"""A handle on the command line: completed from the registry, and a slip in it is a usage error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.registry import resolve

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class HandleType(click.ParamType[Any]):
    """A handle of the registry."""

    name = "HANDLE"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # only where a shell asks

        contracts = installed_registry().contracts
        return [CompletionItem(handle, help=contract.summary) for handle, contract in contracts.items() if handle.startswith(incomplete)]


def resolve_argument(handle: str) -> Contract:
    """Return the contract that the user named; raise a usage error for a name that cannot be meant, else `Refusal`."""
    try:
        return resolve(handle, installed_registry())
    except Refusal as refusal:
        if {"handle-malformed", "contract-unknown"} & set(refusal.codes):
            raise click.UsageError(str(refusal)) from refusal
        raise

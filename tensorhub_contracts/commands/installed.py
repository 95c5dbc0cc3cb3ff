"""Commands that installed distributions bring: found by the entry-point group `tensorhub.commands`, each loaded by itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, cast

import attrs
import click

from tensorhub_contracts.errors import PluginError, PluginSelectionError
from tensorhub_contracts.plugins.discovery import COMMANDS, EntryPointRecord, scan_metadata
from tensorhub_contracts.plugins.isolation import isolated
from tensorhub_contracts.plugins.loader import load_entry_point
from tensorhub_contracts.plugins.selection import normalized, read_selection
from tensorhub_contracts.plugins.shipped_only import VARIABLE

_TAKEN: Final = "tensorhub has a command of this name, which no distribution may replace"


@attrs.frozen
class InstalledCommand:
    """A command as metadata declares it, and why it is not in use, if that is known before it is loaded."""

    name: str
    record: EntryPointRecord
    fault: str = ""
    #: Whether the user blocked it, which is no fault.
    blocked: bool = False

    @property
    def title(self) -> str:
        """The command and who declares it: `mint (acme-mint 0.1.0)`."""
        return f"{self.name} ({self.record.distribution} {self.record.version})"


def installed_commands(built_in: Collection[str]) -> tuple[InstalledCommand, ...]:
    """Return what the metadata of this environment declares, by name; nothing is imported.

    A name that the tool has itself, or that this distribution declares, is no other's; one that two others declare is
    nobody's: neither is guessed. Raises
    `PluginSelectionError` if `TENSOR_CONTRACTS_PLUGINS` is not well formed or names what is not there.
    """
    selection = read_selection()
    if selection.names:
        from tensorhub_contracts.plugins.host import require_known  # which needs the registry

        require_known(scan_metadata(), selection)
    found: dict[str, dict[tuple[str, str], EntryPointRecord]] = {}
    commands = []
    for record in scan_metadata(COMMANDS).entry_points:
        if selection.is_blocked(record.names, shipped=record.shipped):
            commands.append(InstalledCommand(record.name, record, blocked=True))
        else:
            found.setdefault(record.name, {})[normalized(record.distribution), record.value] = record
    for name, records in found.items():
        shipped = [record for record in records.values() if record.shipped]
        declared = [f"{each.distribution} {each.version}" for each in shipped or records.values()]
        fault = ""
        if len(declared) > 1:
            fault = f"declared by {' and '.join(declared)}; uninstall all but one, or block all but one in {VARIABLE}"
        for record in records.values():
            taken = name in built_in or (shipped and not record.shipped)
            commands.append(InstalledCommand(name, record, _TAKEN if taken else fault))
    return tuple(sorted(commands, key=lambda each: (each.name, each.blocked, not each.record.shipped)))


def load_command(command: InstalledCommand) -> click.Command:
    """Import a command.

    Raises `PluginError`, with its name and who declares it, for whatever is wrong with it, and `PluginSelectionError` if it
    is blocked.
    """
    if command.blocked:
        raise PluginSelectionError([f"{command.title}: blocked by {VARIABLE}"])
    fault, loaded = command.fault, None
    if not fault:
        outcome = load_entry_point(command.record, COMMANDS)
        loaded, fault = outcome.value, outcome.fault
    if not fault and not issubclass(type(loaded), click.Command):  # what `__class__` says is the plugin's code
        fault = f"{command.record.value} is {type(loaded).__name__}, and no click command"
    if fault:
        raise PluginError([f"{command.title}, entry point {command.record.value}: {fault}"])
    return cast("click.Command", loaded)


def short_help(command: InstalledCommand) -> str:
    """Return the line that `--help` shows for a command; raise as `load_command` does, also for a help that cannot be had."""
    loaded = load_command(command)
    outcome = isolated(lambda: loaded.get_short_help_str(limit=80), title=command.title, trusted=command.record.shipped)
    if outcome.fault:
        raise PluginError([f"{command.title}, entry point {command.record.value}: {outcome.fault}"])
    return outcome.value or ""

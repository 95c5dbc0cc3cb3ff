"""Commands that installed distributions bring: found by the entry-point group `tensorhub.commands`, each loaded by itself."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import click

from tensorhub_contracts.errors import PluginError, PluginSelectionError
from tensorhub_contracts.plugins.discovery import COMMANDS, EntryPointRecord, scan_metadata
from tensorhub_contracts.plugins.loader import load_entry_point
from tensorhub_contracts.plugins.selection import normalized, read_selection
from tensorhub_contracts.plugins.shipped_only import VARIABLE


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

    A name that the tool has itself, and one that two distributions declare, is nobody's: neither is guessed. Raises
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
        declared = [f"{each.distribution} {each.version}" for each in records.values()]
        fault = ""
        if name in built_in:
            fault = "tensorhub has a command of this name, which no distribution may replace"
        elif len(records) > 1:
            fault = f"declared by {' and '.join(declared)}; uninstall all but one, or block all but one in {VARIABLE}"
        commands += [InstalledCommand(name, record, fault) for record in records.values()]
    return tuple(sorted(commands, key=lambda each: (each.name, each.blocked)))


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
    if not fault and not isinstance(loaded, click.Command):
        fault = f"{command.record.value} is {type(loaded).__name__}, and no click command"
    if fault or not isinstance(loaded, click.Command):
        raise PluginError([f"{command.title}, entry point {command.record.value}: {fault}"])
    return loaded

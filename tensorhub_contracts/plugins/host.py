"""The plugins of this environment: found once a process, loaded one by one, and what they claim settled among them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import attrs

from tensorhub_contracts.errors import PluginSelectionError, RegistryError, writable
from tensorhub_contracts.plugins.conflicts import contract_conflicts, is_named, lane_conflicts, name_conflicts
from tensorhub_contracts.plugins.discovery import COMMANDS, DamagedMetadata, EntryPointRecord, MetadataScan, owning_metadata, scan_metadata
from tensorhub_contracts.plugins.facts import Plugin, Plugins, State
from tensorhub_contracts.plugins.loader import load_plugin
from tensorhub_contracts.plugins.selection import PluginSelection, normalized, read_selection
from tensorhub_contracts.plugins.shipped_only import VARIABLE
from tensorhub_contracts.registry.plugin_contracts import OwnedContracts, with_owned
from tensorhub_contracts.registry.registry import Registry, load_registry


@functools.cache
def installed_plugins() -> Plugins:
    """Return the plugins of this environment; metadata is scanned and plugins are loaded once a process.

    `installed_plugins.cache_clear()` makes the next call look again. Raises `PluginSelectionError` if
    `TENSOR_CONTRACTS_PLUGINS` is not well formed or names what is not there.
    """
    return resolve_plugins(scan_metadata(), read_selection())


def resolve_plugins(scan: MetadataScan, selection: PluginSelection) -> Plugins:
    """Load what a scan found and a selection admits, and resolve_plugins what the plugins registered."""
    require_known(scan, selection)
    blocked = {record for record in scan.entry_points if selection.is_blocked(record.names, shipped=record.shipped)}
    reasons = name_conflicts(record for record in scan.entry_points if record not in blocked)
    plugins: list[Plugin] = []
    owned: dict[str, OwnedContracts] = {}
    for records in _by_plugin(scan.entry_points):
        record = records[0]
        if record in blocked:
            plugins.append(_plugin(record, "blocked", f"by {VARIABLE}"))
        elif record in reasons:
            plugins.append(_plugin(record, "conflict", reasons[record]))
        else:
            plugin, contracts = _loaded(records)
            plugins.append(plugin)
            if contracts is not None:
                owned[plugin.name] = contracts
    plugins, registry = _with_contracts(plugins, owned)
    plugins = [_with_known_contracts(plugin, registry) for plugin in plugins]
    _require_winners(plugins, selection, registry)
    decoded = (
        frozenset(registered.declaration.contract for plugin in plugins for registered in plugin.decoders) - selection.blocked_contracts
    )
    unavailable = tuple(f"{plugin.title} is {plugin.state}: {plugin.reason}" for plugin in plugins if plugin.state != "loaded")
    registry = attrs.evolve(registry, decoded=decoded, unavailable=unavailable)
    damaged = tuple(DamagedMetadata(writable(each.metadata), writable(each.reason)) for each in scan.damaged)
    return Plugins(tuple(plugins), scan.distributions, damaged, registry, selection, lane_conflicts(plugins, selection))


def _by_plugin(records: Iterable[EntryPointRecord]) -> list[list[EntryPointRecord]]:
    """Put the metadata together that declare one and the same plugin, and sort by name."""
    groups: dict[tuple[str, str, str], list[EntryPointRecord]] = {}
    for record in records:
        groups.setdefault((normalized(record.name), normalized(record.distribution), record.value), []).append(record)
    return [groups[key] for key in sorted(groups)]


def _plugin(record: EntryPointRecord, state: State, reason: str = "") -> Plugin:
    name, distribution, version, value, metadata = map(
        writable, (record.name, record.distribution, record.version, record.value, record.metadata)
    )
    return Plugin(name, distribution, version, value, metadata, state, record.shipped, reason=writable(reason))


def _loaded(records: list[EntryPointRecord]) -> tuple[Plugin, OwnedContracts | None]:
    """Load a plugin; return it with the contracts that it owns."""
    loaded = load_plugin(records[0])
    record, notes = owning_metadata(records, loaded.file)
    plugin = attrs.evolve(_plugin(record, "loaded"), file=writable(loaded.file), notes=tuple(map(writable, notes)))
    if loaded.fault:
        fault, lines = writable(loaded.fault), writable(loaded.traceback)
        return attrs.evolve(plugin, state="broken", reason=fault, traceback=lines), None
    contracts = tuple(loaded.owned.contracts) if loaded.owned is not None else ()
    return attrs.evolve(plugin, decoders=loaded.decoders, contracts=contracts), loaded.owned


def _without_use(plugin: Plugin, state: State, reason: str) -> Plugin:
    return attrs.evolve(plugin, state=state, reason=reason, decoders=(), contracts=())


def _with_contracts(plugins: list[Plugin], owned: Mapping[str, OwnedContracts]) -> tuple[list[Plugin], Registry]:
    """Add what plugins own to the shipped registry; plugins that disagree are in conflict, all of them."""
    registry = load_registry()
    reasons = contract_conflicts(owned)
    settled = []
    for plugin in plugins:
        if plugin.name in reasons:
            settled.append(_without_use(plugin, "conflict", reasons[plugin.name]))
            continue
        if plugin.name in owned:
            try:
                registry = with_owned(registry, owned[plugin.name])
            except RegistryError as error:
                settled.append(_without_use(plugin, "broken", "; ".join(error.problems)))
                continue
        settled.append(plugin)
    return settled, registry


def _with_known_contracts(plugin: Plugin, registry: Registry) -> Plugin:
    """Refuse a plugin that decodes a contract which the registry does not have, or has with another digest."""
    for registered in plugin.decoders:
        declared = registered.declaration
        if declared.contract not in registry.contracts:
            reason = f"{registered.name} reads {declared.contract}, which no loaded plugin owns; return it from provide_contracts"
            return _without_use(plugin, "broken", reason)
        if registry.digest(declared.contract) != declared.digest:
            reason = f"{registered.name} reads {declared.contract} as {declared.digest}, and it is {registry.digest(declared.contract)}"
            return _without_use(plugin, "broken", reason)
    return plugin


def require_known(scan: MetadataScan, selection: PluginSelection) -> None:
    """Raise `PluginSelectionError` with every name that no plugin of a scan has, no distribution, and no installed command."""
    unknown = selection.names - _names(scan)
    if unknown:
        unknown -= _names(scan_metadata(COMMANDS))
    if unknown:
        listed = ", ".join(sorted({record.name for record in scan.entry_points})) or "none"
        raise PluginSelectionError(f"{VARIABLE}: {name!r} names no installed plugin; there are {listed}" for name in sorted(unknown))


def _names(scan: MetadataScan) -> set[str]:
    return {name for record in scan.entry_points for name in record.names}


def _require_winners(plugins: Iterable[Plugin], selection: PluginSelection, registry: Registry) -> None:
    problems = [
        f"{VARIABLE}: -{handle}: no contract of this installation" for handle in selection.blocked_contracts - {*registry.contracts}
    ]
    for handle, winner in selection.winners.items():
        named = [plugin for plugin in plugins if is_named(plugin, winner)]
        if not any(registered.declaration.contract == handle for plugin in named for registered in plugin.decoders):
            states = ", ".join(f"{plugin.title} is {plugin.state}" for plugin in named)
            problems.append(f"{VARIABLE}: {handle}={winner}: {winner} does not decode it ({states})")
    if problems:
        raise PluginSelectionError(sorted(problems))

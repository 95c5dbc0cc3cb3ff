"""The plugins of this environment: found once a process, loaded one by one, and what they claim settled among them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import msgspec

from tensorhub_contracts.errors import PluginSelectionError, RegistryError, writable
from tensorhub_contracts.plugins.conflicts import contests, contract_conflicts, is_named, name_conflicts
from tensorhub_contracts.plugins.discovery import DamagedMetadata, EntryPointRecord, MetadataScan, owner, scan_metadata
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
    `TENSORHUB_PLUGINS` is not well formed or names what is not there.
    """
    return settle(scan_metadata(), read_selection())


def settle(scan: MetadataScan, selection: PluginSelection) -> Plugins:
    """Load what a scan found and a selection admits, and settle what the plugins claim."""
    _require_known(scan, selection)
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
    plugins = [_with_registered_claims(plugin, registry) for plugin in plugins]
    _require_winners(plugins, selection, registry)
    decoded = frozenset(claim.declaration.contract for plugin in plugins for claim in plugin.claims) - selection.blocked_contracts
    unavailable = tuple(f"{plugin.title} is {plugin.state}: {plugin.reason}" for plugin in plugins if plugin.state != "loaded")
    registry = msgspec.structs.replace(registry, decoded=decoded, unavailable=unavailable)
    damaged = tuple(DamagedMetadata(writable(each.metadata), writable(each.reason)) for each in scan.damaged)
    return Plugins(tuple(plugins), scan.distributions, damaged, registry, selection, contests(plugins, selection))


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
    record, notes = owner(records, loaded.file)
    plugin = msgspec.structs.replace(_plugin(record, "loaded"), file=writable(loaded.file), notes=tuple(map(writable, notes)))
    if loaded.fault:
        fault, lines = writable(loaded.fault), writable(loaded.traceback)
        return msgspec.structs.replace(plugin, state="broken", reason=fault, traceback=lines), None
    contracts = tuple(loaded.owned.contracts) if loaded.owned is not None else ()
    return msgspec.structs.replace(plugin, claims=loaded.claims, contracts=contracts), loaded.owned


def _without_use(plugin: Plugin, state: State, reason: str) -> Plugin:
    return msgspec.structs.replace(plugin, state=state, reason=reason, claims=(), contracts=())


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


def _with_registered_claims(plugin: Plugin, registry: Registry) -> Plugin:
    """Refuse a plugin that decodes a contract which the registry does not have, or has with another digest."""
    for claim in plugin.claims:
        declared = claim.declaration
        if declared.contract not in registry.contracts:
            reason = f"{claim.decoder} reads {declared.contract}, which no loaded plugin owns; return it from provide_contracts"
            return _without_use(plugin, "broken", reason)
        if registry.digest(declared.contract) != declared.digest:
            reason = f"{claim.decoder} reads {declared.contract} as {declared.digest}, and it is {registry.digest(declared.contract)}"
            return _without_use(plugin, "broken", reason)
    return plugin


def _require_known(scan: MetadataScan, selection: PluginSelection) -> None:
    known = {name for record in scan.entry_points for name in record.names}
    unknown = sorted(selection.names - known)
    if unknown:
        listed = ", ".join(sorted({record.name for record in scan.entry_points})) or "none"
        raise PluginSelectionError(f"{VARIABLE}: {name!r} names no installed plugin; there are {listed}" for name in unknown)


def _require_winners(plugins: Iterable[Plugin], selection: PluginSelection, registry: Registry) -> None:
    problems = [
        f"{VARIABLE}: -{handle}: no contract of this installation" for handle in selection.blocked_contracts - {*registry.contracts}
    ]
    for handle, winner in selection.winners.items():
        named = [plugin for plugin in plugins if is_named(plugin, winner)]
        if not any(claim.declaration.contract == handle for plugin in named for claim in plugin.claims):
            states = ", ".join(f"{plugin.title} is {plugin.state}" for plugin in named)
            problems.append(f"{VARIABLE}: {handle}={winner}: {winner} does not decode it ({states})")
    if problems:
        raise PluginSelectionError(sorted(problems))

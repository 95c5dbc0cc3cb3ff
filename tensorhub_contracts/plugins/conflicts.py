"""What two plugins cannot both have: a name, a contract, a lane of a contract. No answer depends on their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tensorhub_contracts.plugins.discovery import EntryPointRecord
from tensorhub_contracts.plugins.facts import LaneConflict, Plugin
from tensorhub_contracts.plugins.loader import RegisteredDecoder
from tensorhub_contracts.plugins.selection import PluginSelection, normalized
from tensorhub_contracts.registry.digests import contract_digest
from tensorhub_contracts.registry.plugin_contracts import OwnedContracts


def name_conflicts(records: Iterable[EntryPointRecord]) -> dict[EntryPointRecord, str]:
    """Return why entry points may not be loaded: one name, and two distributions or two values.

    A shipped plugin keeps its name, whoever else takes it.
    """
    by_name: dict[str, list[EntryPointRecord]] = defaultdict(list)
    for record in records:
        by_name[normalized(record.name)].append(record)
    reasons: dict[EntryPointRecord, str] = {}
    for same in by_name.values():
        if len({(normalized(record.distribution), record.value) for record in same}) > 1:
            shipped = {record.value for record in same if record.shipped}
            for record in same:
                if not (record.shipped and len(shipped) == 1):
                    others = [other for other in same if other != record]
                    reasons[record] = "its name is taken by " + "; ".join(f"{other.value} of {_whose(other)}" for other in others)
    return reasons


def contract_conflicts(owned: Mapping[str, OwnedContracts]) -> dict[str, str]:
    """Return why plugins, by name, may not own what they own: another one describes the same thing differently."""
    holders: dict[tuple[str, str], dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, each in owned.items():
        facts: list[tuple[str, str, object]] = [("contract", contract.handle, contract) for contract in each.contracts.values()]
        facts += [("digest", contract_digest(contract), contract.handle) for contract in each.contracts.values()]
        facts += [("sidecar", sidecar.suffix, sidecar) for sidecar in each.sidecars]
        facts += [("payload", payload.suffix, payload) for payload in each.payloads]
        facts += [("reference dequant", dequant.name, dequant) for dequant in each.reference_dequants]
        for kind, key, fact in facts:
            holders[kind, key][_comparable(fact)].append(name)
    reasons: dict[str, str] = {}
    for (kind, key), versions in sorted(holders.items()):
        if len(versions) > 1:
            names = sorted(name for group in versions.values() for name in group)
            for name in names:
                others = ", ".join(other for other in names if other != name)
                reasons.setdefault(name, f"{kind} {key} is described differently by {others}")
    return reasons


def lane_conflicts(plugins: Iterable[Plugin], selection: PluginSelection) -> tuple[LaneConflict, ...]:
    """Return the lane bodies that several decoders registered, with the winner that the image names."""
    claimants: dict[tuple[str, str], dict[str, tuple[Plugin, RegisteredDecoder]]] = defaultdict(dict)
    for plugin in plugins:
        for registered in plugin.decoders:
            for body in registered.declaration.serves:
                claimants[registered.declaration.contract, body].setdefault(registered.name, (plugin, registered))
    found = []
    for (contract, body), by_decoder in sorted(claimants.items()):
        if len(by_decoder) > 1 and contract not in selection.blocked_contracts:
            several = tuple(by_decoder[decoder] for decoder in sorted(by_decoder))
            wanted = selection.winners.get(contract, "")
            named = {plugin.name for plugin, _ in several if is_named(plugin, wanted)}
            winners = [registered for plugin, registered in several if plugin.name in named]
            found.append(LaneConflict(contract, body, several, winner=named.pop() if len(winners) == 1 else ""))
    return tuple(found)


def is_named(plugin: Plugin, name: str) -> bool:
    """Whether a normalized name is that of a plugin or of its distribution."""
    return name in (normalized(plugin.name), normalized(plugin.distribution))


def _whose(record: EntryPointRecord) -> str:
    return f"{record.distribution} {record.version}".strip() + f" ({record.metadata})"


def _comparable(fact: object) -> object:
    """Contracts hold mappings and cannot be hashed; their text tells them apart as well."""
    return repr(fact)

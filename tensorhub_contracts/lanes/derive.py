"""`derive_execution_lanes`: what the decoders installed here can execute, derived when an image is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from tensorhub_contracts.errors import PluginError, Refusal, Violation
from tensorhub_contracts.lanes.hub_table import split_by_table
from tensorhub_contracts.lanes.image_lanes import (
    DERIVATION,
    DecoderLanes,
    Excluded,
    ImageLanes,
    ScanCount,
    SupersededContract,
    lanes_digest,
)
from tensorhub_contracts.lanes.requirements import missing_requirements
from tensorhub_contracts.plugins.facts import LaneConflict, Plugin, Plugins
from tensorhub_contracts.plugins.host import installed_plugins
from tensorhub_contracts.plugins.loader import RegisteredDecoder
from tensorhub_contracts.plugins.shipped_only import VARIABLE
from tensorhub_contracts.registry.registry import Registry


def derive_execution_lanes(plugins: Plugins | None = None) -> ImageLanes:
    """Return the lanes that this environment can execute: a function of what is installed, and of nothing else.

    Needs no GPU, driver or torch, imports no module that a decoder requires, and does not depend on the order of
    `sys.path`. Plugins that are broken or blocked and decoders whose requirements are missing are listed as excluded.
    Raises `Refusal` (`plugin-conflict`) with every conflict, and `PluginError` if no plugin is found at all: this
    distribution declares some, so the metadata of the environment is incomplete.
    """
    plugins = plugins or installed_plugins()
    if not plugins.plugins:
        raise PluginError(
            [
                f"no plugin found among {plugins.distributions} distributions, not even the shipped ones: the metadata of installed "
                "distributions (*.dist-info) is missing from this environment. Install with pip, or copy it with the packages."
            ]
        )
    conflicts = [*_plugin_conflicts(plugins.plugins), *_lane_conflicts(plugins.lane_conflicts)]
    if conflicts:
        raise Refusal(conflicts)
    entries: list[DecoderLanes] = []
    excluded = [*_unused_plugins(plugins.plugins)]
    for plugin, registered in _decoders(plugins.loaded):
        exclusions = list(_exclusions(plugin, registered, plugins))
        excluded += exclusions
        left_out = {lane for exclusion in exclusions for lane in exclusion.lanes}
        served = tuple(lane for lane in _lanes(registered, plugins.registry) if lane not in left_out)
        if served:
            entries.append(_entry(plugin, registered, served, plugins.registry))
    entries.sort(key=lambda entry: (entry.contract, entry.decoder))
    offered = {lane for entry in entries for lane in entry.all_lanes}
    of_table, beyond = split_by_table(lane for lane in _ranked(plugins.registry.lanes, plugins.registry) if lane in offered)
    lanes = ImageLanes(
        version=1,
        derivation=DERIVATION,
        lanes=of_table,
        lanes_beyond_table=beyond,
        contracts=tuple(entries),
        excluded=tuple(sorted(excluded, key=lambda each: (each.module, each.code, each.contract, each.lanes))),
        digest="",
        scan=ScanCount(plugins.distributions, len(plugins.damaged), len(plugins.plugins)),
    )
    return attrs.evolve(lanes, digest=lanes_digest(lanes))


def _decoders(plugins: Iterable[Plugin]) -> Iterator[tuple[Plugin, RegisteredDecoder]]:
    """Yield each decoder of each contract once, although two entry points may name one plugin."""
    seen = set()
    for plugin in plugins:
        for registered in plugin.decoders:
            if (registered.name, registered.declaration.contract) not in seen:
                seen.add((registered.name, registered.declaration.contract))
                yield plugin, registered


def _ranked(bodies: Iterable[str], registry: Registry) -> Iterator[str]:
    """Yield the lanes of bodies, best first."""
    for lane in sorted((registry.lanes[body] for body in bodies), key=lambda lane: lane.rank):
        yield from (f"{lane.body}+{execution}" for execution in lane.executions)


def _lanes(registered: RegisteredDecoder, registry: Registry) -> tuple[str, ...]:
    return tuple(_ranked(registered.declaration.serves, registry))


def _entry(plugin: Plugin, registered: RegisteredDecoder, lanes: tuple[str, ...], registry: Registry) -> DecoderLanes:
    declared = registered.declaration
    floors = registry.contracts[declared.contract].floors
    of_table, beyond = split_by_table(lanes)
    return DecoderLanes(
        contract=declared.contract,
        digest=declared.digest,
        decoder=registered.name,
        distribution=plugin.distribution,
        version=plugin.version,
        lanes=of_table,
        lanes_beyond_table=beyond,
        floors={body: floors[body] for body in dict.fromkeys(lane.partition("+")[0] for lane in lanes)},
        composes_lora=declared.composes_lora,
        requires=tuple(sorted(declared.requires)),
        supersedes=tuple(SupersededContract(each.handle, each.digest) for each in registry.superseded if each.by == declared.contract),
        why=declared.why,
    )


def _exclusions(plugin: Plugin, registered: RegisteredDecoder, plugins: Plugins) -> Iterator[Excluded]:
    """Yield why lanes of a decoder, or all of them, are left out."""
    declared = registered.declaration
    lanes = _lanes(registered, plugins.registry)
    if declared.contract in plugins.selection.blocked_contracts:
        yield Excluded(registered.name, "contract-blocked", declared.contract, lanes, f"by {VARIABLE}")
        return
    missing = missing_requirements(declared.requires)
    if missing:
        reason = f"{', '.join(missing)} cannot be imported here"
        yield Excluded(registered.name, "requirement-missing", declared.contract, lanes, reason)
        return
    lost = [each for each in plugins.lane_conflicts if any(registered == loser for _, loser in each.losers)]
    if lost:
        bodies = {conflict.body for conflict in lost}
        overridden = tuple(lane for lane in lanes if lane.partition("+")[0] in bodies)
        reason = f"{VARIABLE} names {lost[0].winner} as the decoder of {declared.contract}"
        yield Excluded(registered.name, "lane-overridden", declared.contract, overridden, reason)


def _unused_plugins(plugins: Iterable[Plugin]) -> Iterator[Excluded]:
    for plugin in plugins:
        if plugin.state == "broken":
            yield Excluded(plugin.value, "plugin-broken", "", (), f"{plugin.title}: {plugin.reason}")
        elif plugin.state == "blocked":
            yield Excluded(plugin.value, "plugin-blocked", "", (), f"{plugin.title}: {plugin.reason}")


def _plugin_conflicts(plugins: Iterable[Plugin]) -> Iterator[Violation]:
    for plugin in plugins:
        if plugin.state == "conflict":
            remedy = f"Uninstall one of them, or block one in {VARIABLE} by the name of its distribution."
            yield Violation(
                code="plugin-conflict",
                object=plugin.title,
                expected="a name and contracts that no other plugin has",
                found=plugin.reason,
                remedy=remedy,
            )


def _lane_conflicts(lane_conflicts: Iterable[LaneConflict]) -> Iterator[Violation]:
    for conflict in lane_conflicts:
        if not conflict.winner:
            found = " and ".join(f"{registered.name} of {plugin.title}" for plugin, registered in conflict.claimants)
            remedy = f"Set {VARIABLE} to {conflict.contract}=NAME to say which plugin decodes it, or block one with -NAME."
            yield Violation(
                code="plugin-conflict", object=f"{conflict.contract} in {conflict.body}", expected="one decoder", found=found, remedy=remedy
            )

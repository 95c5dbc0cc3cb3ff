"""`derive_execution_lanes`: what the decoders installed here can execute, derived when an image is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tensorhub_contracts.errors import PluginError, Refusal, Violation
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
from tensorhub_contracts.plugins.facts import Contest, Plugin, Plugins
from tensorhub_contracts.plugins.host import installed_plugins
from tensorhub_contracts.plugins.loader import Claim
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
    conflicts = [*_plugin_conflicts(plugins.plugins), *_lane_conflicts(plugins.contests)]
    if conflicts:
        raise Refusal(conflicts)
    entries: list[DecoderLanes] = []
    excluded = [*_unused_plugins(plugins.plugins)]
    for plugin, claim in _claims(plugins.loaded):
        exclusions = list(_exclusions(plugin, claim, plugins))
        excluded += exclusions
        left_out = {lane for exclusion in exclusions for lane in exclusion.lanes}
        served = tuple(lane for lane in _lanes(claim, plugins.registry) if lane not in left_out)
        if served:
            entries.append(_entry(plugin, claim, served, plugins.registry))
    entries.sort(key=lambda entry: (entry.contract, entry.decoder))
    offered = {lane for entry in entries for lane in entry.lanes}
    lanes = ImageLanes(
        version=1,
        derivation=DERIVATION,
        lanes=tuple(lane for lane in _ranked(plugins.registry.lanes, plugins.registry) if lane in offered),
        contracts=tuple(entries),
        excluded=tuple(sorted(excluded, key=lambda each: (each.module, each.code, each.contract, each.lanes))),
        digest="",
        scan=ScanCount(plugins.distributions, len(plugins.damaged), len(plugins.plugins)),
    )
    return msgspec.structs.replace(lanes, digest=lanes_digest(lanes))


def _claims(plugins: Iterable[Plugin]) -> Iterator[tuple[Plugin, Claim]]:
    """Yield each claim once, although two entry points may name one plugin."""
    seen = set()
    for plugin in plugins:
        for claim in plugin.claims:
            if (claim.decoder, claim.declaration.contract) not in seen:
                seen.add((claim.decoder, claim.declaration.contract))
                yield plugin, claim


def _ranked(bodies: Iterable[str], registry: Registry) -> Iterator[str]:
    """Yield the lanes of bodies, best first."""
    for lane in sorted((registry.lanes[body] for body in bodies), key=lambda lane: lane.rank):
        yield from (f"{lane.body}+{execution}" for execution in lane.executions)


def _lanes(claim: Claim, registry: Registry) -> tuple[str, ...]:
    return tuple(_ranked(claim.declaration.serves, registry))


def _entry(plugin: Plugin, claim: Claim, lanes: tuple[str, ...], registry: Registry) -> DecoderLanes:
    declared = claim.declaration
    floors = registry.contracts[declared.contract].floors
    return DecoderLanes(
        contract=declared.contract,
        digest=declared.digest,
        decoder=claim.decoder,
        distribution=plugin.distribution,
        version=plugin.version,
        lanes=lanes,
        floors={body: floors[body] for body in dict.fromkeys(lane.partition("+")[0] for lane in lanes)},
        composes_lora=declared.composes_lora,
        requires=tuple(sorted(declared.requires)),
        supersedes=tuple(SupersededContract(each.handle, each.digest) for each in registry.superseded if each.by == declared.contract),
        why=declared.why,
    )


def _exclusions(plugin: Plugin, claim: Claim, plugins: Plugins) -> Iterator[Excluded]:
    """Yield why lanes of a claim, or all of them, are left out."""
    declared = claim.declaration
    lanes = _lanes(claim, plugins.registry)
    if declared.contract in plugins.selection.blocked_contracts:
        yield Excluded(claim.decoder, "contract-blocked", declared.contract, lanes, f"by {VARIABLE}")
        return
    missing = missing_requirements(declared.requires)
    if missing:
        reason = f"{', '.join(missing)} cannot be imported here"
        yield Excluded(claim.decoder, "requirement-missing", declared.contract, lanes, reason)
        return
    lost = [each for each in plugins.contests if any(claim == loser for _, loser in each.losers)]
    if lost:
        bodies = {contest.body for contest in lost}
        overridden = tuple(lane for lane in lanes if lane.partition("+")[0] in bodies)
        reason = f"{VARIABLE} names {lost[0].winner} as the decoder of {declared.contract}"
        yield Excluded(claim.decoder, "lane-overridden", declared.contract, overridden, reason)


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
            yield Violation("plugin-conflict", plugin.title, "a name and contracts that no other plugin has", plugin.reason, remedy)


def _lane_conflicts(contests: Iterable[Contest]) -> Iterator[Violation]:
    for contest in contests:
        if not contest.winner:
            found = " and ".join(f"{claim.decoder} of {plugin.title}" for plugin, claim in contest.claimants)
            remedy = f"Set {VARIABLE} to {contest.contract}=NAME to say which plugin decodes it, or block one with -NAME."
            yield Violation("plugin-conflict", f"{contest.contract} in {contest.body}", "one decoder", found, remedy)

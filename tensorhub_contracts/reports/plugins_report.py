"""The plugins of an environment, for programs; `tensorhub schema plugins` prints the JSON Schema."""

from __future__ import annotations

import attrs

from tensorhub_contracts.documents import document_json
from tensorhub_contracts.plugins.declaring import DecoderDeclaration
from tensorhub_contracts.plugins.discovery import DamagedMetadata
from tensorhub_contracts.plugins.facts import Plugins, State


@attrs.frozen
class ClaimReport:
    """One contract that a decoder, `module:qualname`, reads."""

    decoder: str
    declaration: DecoderDeclaration


@attrs.frozen
class PluginReport:
    """One plugin; the fields are those of `tensorhub_contracts.plugins.facts.Plugin`."""

    name: str
    distribution: str
    version: str
    value: str
    metadata: str
    file: str
    shipped: bool
    state: State
    reason: str
    traceback: str
    notes: tuple[str, ...]
    owns: tuple[str, ...]
    decodes: tuple[ClaimReport, ...]


@attrs.frozen
class ContestReport:
    """A lane body of a contract that several decoders registered, and the plugin that was named as the winner, or nothing."""

    contract: str
    body: str
    plugins: tuple[str, ...]
    decoders: tuple[str, ...]
    winner: str


@attrs.frozen
class PluginsReport:
    """Everything that one scan of an environment found."""

    version: int
    distributions: int
    plugins: tuple[PluginReport, ...]
    lane_conflicts: tuple[ContestReport, ...]
    damaged: tuple[DamagedMetadata, ...]


def plugins_json(plugins: Plugins) -> str:
    """Return the plugins as JSON with two spaces of indentation, ended by a newline."""
    report = PluginsReport(
        version=1,
        distributions=plugins.distributions,
        plugins=tuple(
            PluginReport(
                name=each.name,
                distribution=each.distribution,
                version=each.version,
                value=each.value,
                metadata=each.metadata,
                file=each.file,
                shipped=each.shipped,
                state=each.state,
                reason=each.reason,
                traceback=each.traceback,
                notes=each.notes,
                owns=each.contracts,
                decodes=tuple(ClaimReport(registered.name, registered.declaration) for registered in each.decoders),
            )
            for each in plugins.plugins
        ),
        lane_conflicts=tuple(
            ContestReport(
                each.contract,
                each.body,
                tuple(plugin.name for plugin, _ in each.claimants),
                tuple(registered.name for _, registered in each.claimants),
                each.winner,
            )
            for each in plugins.lane_conflicts
        ),
        damaged=plugins.damaged,
    )
    return document_json(report)

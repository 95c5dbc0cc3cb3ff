"""What is known of the plugins of an environment, as frozen classes."""

from __future__ import annotations

from typing import Literal

import attrs

from tensorhub_contracts.plugins.discovery import DamagedMetadata
from tensorhub_contracts.plugins.loader import RegisteredDecoder
from tensorhub_contracts.plugins.selection import PluginSelection
from tensorhub_contracts.registry.registry import Registry

State = Literal["loaded", "blocked", "broken", "conflict"]


@attrs.frozen
class Plugin:
    """One plugin with its provenance, its state, and why it is not in use if it is not."""

    name: str
    distribution: str
    version: str
    #: What the entry point names: `module` or `module:attribute`.
    value: str
    #: The path of the metadata that says so.
    metadata: str
    state: State
    shipped: bool
    #: The file that its module was imported from.
    file: str = ""
    reason: str = ""
    traceback: str = ""
    #: What is odd and no fault.
    notes: tuple[str, ...] = ()
    decoders: tuple[RegisteredDecoder, ...] = ()
    #: The handles that it owns.
    contracts: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The plugin in a few words: `int8 (acme-int8 0.1.0)`."""
        return f"{self.name} ({self.distribution}{' ' + self.version if self.version else ''})"


@attrs.frozen
class LaneConflict:
    """A lane body of a contract that several decoders claim."""

    contract: str
    body: str
    claimants: tuple[tuple[Plugin, RegisteredDecoder], ...]
    #: The plugin that the image names, or empty.
    winner: str = ""

    @property
    def settled(self) -> bool:
        """Whether the image names a winner."""
        return bool(self.winner)

    @property
    def losers(self) -> tuple[tuple[Plugin, RegisteredDecoder], ...]:
        """The claimants that do not get the lane: all of them until a winner is named."""
        return tuple((plugin, registered) for plugin, registered in self.claimants if plugin.name != self.winner)


@attrs.frozen
class Plugins:
    """All plugins of this environment, sorted by name."""

    plugins: tuple[Plugin, ...]
    #: How many distributions the scan saw.
    distributions: int
    damaged: tuple[DamagedMetadata, ...]
    #: With the contracts that loaded plugins own.
    registry: Registry
    selection: PluginSelection
    lane_conflicts: tuple[LaneConflict, ...]

    @property
    def loaded(self) -> tuple[Plugin, ...]:
        """The plugins that are in use."""
        return tuple(plugin for plugin in self.plugins if plugin.state == "loaded")

    def decoder(self, name: str, contract: str) -> RegisteredDecoder:
        """Return the decoder with a name, `module:qualname`, that a plugin in use registered for a contract; KeyError for none."""
        for plugin in self.loaded:
            for registered in plugin.decoders:
                if (registered.name, registered.declaration.contract) == (name, contract):
                    return registered
        raise KeyError(f"{name} for {contract}")

    @property
    def faulty(self) -> tuple[Plugin, ...]:
        """The plugins that are broken or in conflict. A blocked one is neither."""
        return tuple(plugin for plugin in self.plugins if plugin.state in ("broken", "conflict"))

"""The registry of this installation: the shipped contracts, and those that plugins own."""

from __future__ import annotations

from tensorhub_contracts.plugins.shipped_only import only_shipped_plugins
from tensorhub_contracts.registry.registry import Registry, load_registry


def installed_registry() -> Registry:
    """Return the contracts that this installation knows and which of them a decoder is installed for.

    Loads the declarations of plugins once a process, and only if a plugin other than the shipped ones is installed.
    Raises `PluginSelectionError` if `TENSOR_CONTRACTS_PLUGINS` is not well formed or names what is not there.
    """
    if only_shipped_plugins():
        return load_registry()
    from tensorhub_contracts.plugins.host import installed_plugins  # which takes as long as a whole inspection

    return installed_plugins().registry

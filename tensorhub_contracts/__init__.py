"""Named, versioned tensor layouts, and the proof that a checkpoint is in one, from its headers alone.

What stands here is the public interface, with `tensorhub_contracts.testing`; packages and modules below are not part of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tensorhub_contracts._version import __version__ as __version__

if TYPE_CHECKING:
    from tensorhub_contracts.errors import DeclarationError as DeclarationError
    from tensorhub_contracts.errors import FaultError as FaultError
    from tensorhub_contracts.errors import PluginError as PluginError
    from tensorhub_contracts.errors import PluginSelectionError as PluginSelectionError
    from tensorhub_contracts.errors import Refusal as Refusal
    from tensorhub_contracts.errors import RegistryError as RegistryError
    from tensorhub_contracts.errors import TensorhubError as TensorhubError
    from tensorhub_contracts.errors import Violation as Violation
    from tensorhub_contracts.hub.artifact import Artifact as Artifact
    from tensorhub_contracts.hub.artifact import record_artifact as record_artifact
    from tensorhub_contracts.hub.demand import Demand as Demand
    from tensorhub_contracts.hub.problem import Problem as Problem
    from tensorhub_contracts.hub.problem import problem_details as problem_details
    from tensorhub_contracts.hub.satisfies import satisfies as satisfies
    from tensorhub_contracts.hub.verdict import Verdict as Verdict
    from tensorhub_contracts.inspection.inspector import inspect as inspect
    from tensorhub_contracts.inspection.inspector import inspect_planned as inspect_planned
    from tensorhub_contracts.inspection.result import Inspection as Inspection
    from tensorhub_contracts.inspection.result import Unit as Unit
    from tensorhub_contracts.lanes.derive import derive_execution_lanes as derive_execution_lanes
    from tensorhub_contracts.lanes.image_lanes import ImageLanes as ImageLanes
    from tensorhub_contracts.loading import LoadedWeights as LoadedWeights
    from tensorhub_contracts.loading import LoadReport as LoadReport
    from tensorhub_contracts.loading import UnsupportedLane as UnsupportedLane
    from tensorhub_contracts.loading import load as load
    from tensorhub_contracts.plugins.declaring import DecodedTensor as DecodedTensor
    from tensorhub_contracts.plugins.declaring import DecoderDeclaration as DecoderDeclaration
    from tensorhub_contracts.plugins.declaring import contract_decoders_of as contract_decoders_of
    from tensorhub_contracts.plugins.declaring import implements_contract as implements_contract
    from tensorhub_contracts.plugins.hookspecs import hookimpl as hookimpl
    from tensorhub_contracts.plugins.host import installed_plugins as installed_plugins
    from tensorhub_contracts.plugins.installed import installed_registry as installed_registry
    from tensorhub_contracts.registry.names import parse_lane as parse_lane
    from tensorhub_contracts.registry.plugin_contracts import OwnedContracts as OwnedContracts
    from tensorhub_contracts.registry.plugin_contracts import read_contracts as read_contracts
    from tensorhub_contracts.registry.registry import Registry as Registry
    from tensorhub_contracts.registry.registry import resolve as resolve

#: Public name to the module that defines it; a module is imported when a name of it is first used.
_HOMES = {
    "Artifact": "hub.artifact",
    "DeclarationError": "errors",
    "DecodedTensor": "plugins.declaring",
    "DecoderDeclaration": "plugins.declaring",
    "Demand": "hub.demand",
    "FaultError": "errors",
    "ImageLanes": "lanes.image_lanes",
    "Inspection": "inspection.result",
    "LoadReport": "loading",
    "LoadedWeights": "loading",
    "OwnedContracts": "registry.plugin_contracts",
    "PluginError": "errors",
    "PluginSelectionError": "errors",
    "Problem": "hub.problem",
    "Refusal": "errors",
    "Registry": "registry.registry",
    "RegistryError": "errors",
    "TensorhubError": "errors",
    "Unit": "inspection.result",
    "UnsupportedLane": "loading",
    "Verdict": "hub.verdict",
    "Violation": "errors",
    "contract_decoders_of": "plugins.declaring",
    "derive_execution_lanes": "lanes.derive",
    "hookimpl": "plugins.hookspecs",
    "implements_contract": "plugins.declaring",
    "inspect": "inspection.inspector",
    "inspect_planned": "inspection.inspector",
    "installed_plugins": "plugins.host",
    "installed_registry": "plugins.installed",
    "load": "loading",
    "parse_lane": "registry.names",
    "problem_details": "hub.problem",
    "read_contracts": "registry.plugin_contracts",
    "record_artifact": "hub.artifact",
    "resolve": "registry.registry",
    "satisfies": "hub.satisfies",
}

__all__ = sorted(("__version__", *_HOMES))


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing the package alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

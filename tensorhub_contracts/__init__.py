"""Named, versioned tensor layouts, and the proof that a checkpoint is in one, from its headers alone."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorhub_contracts.artifact_record import Artifact, record_artifact
    from tensorhub_contracts.current_registry import installed_registry
    from tensorhub_contracts.decoded_tensor import DecodedTensor
    from tensorhub_contracts.decoder_declaration import DecoderDeclaration, contract_decoders_of, implements_contract
    from tensorhub_contracts.demand import Demand
    from tensorhub_contracts.errors import (
        DeclarationError,
        FaultError,
        PluginError,
        PluginSelectionError,
        Refusal,
        RegistryError,
        TensorhubError,
        Violation,
    )
    from tensorhub_contracts.execution_lanes import derive_execution_lanes
    from tensorhub_contracts.hookspecs import hookimpl
    from tensorhub_contracts.image_lanes import ImageLanes
    from tensorhub_contracts.inspection import Inspection, Unit
    from tensorhub_contracts.inspector import inspect, inspect_hf_fp8_blockwise
    from tensorhub_contracts.lane_names import LaneName, parse_lane
    from tensorhub_contracts.load_report import LoadedWeights, LoadReport, UnsupportedLane
    from tensorhub_contracts.loading import load
    from tensorhub_contracts.owned_contracts import OwnedContracts, read_contracts
    from tensorhub_contracts.plugins import installed_plugins
    from tensorhub_contracts.problems import Problem, problem_details
    from tensorhub_contracts.registry import Registry, load_registry
    from tensorhub_contracts.resolution import resolve
    from tensorhub_contracts.satisfying import satisfies
    from tensorhub_contracts.verdict import Verdict

__version__ = "0.1.0"

_HOMES = {
    "Artifact": "artifact_record",
    "DeclarationError": "errors",
    "DecodedTensor": "decoded_tensor",
    "DecoderDeclaration": "decoder_declaration",
    "Demand": "demand",
    "FaultError": "errors",
    "ImageLanes": "image_lanes",
    "Inspection": "inspection",
    "LaneName": "lane_names",
    "LoadReport": "load_report",
    "LoadedWeights": "load_report",
    "OwnedContracts": "owned_contracts",
    "PluginError": "errors",
    "PluginSelectionError": "errors",
    "Problem": "problems",
    "Refusal": "errors",
    "Registry": "registry",
    "RegistryError": "errors",
    "TensorhubError": "errors",
    "Unit": "inspection",
    "UnsupportedLane": "load_report",
    "Verdict": "verdict",
    "Violation": "errors",
    "record_artifact": "artifact_record",
    "contract_decoders_of": "decoder_declaration",
    "derive_execution_lanes": "execution_lanes",
    "hookimpl": "hookspecs",
    "implements_contract": "decoder_declaration",
    "inspect": "inspector",
    "inspect_hf_fp8_blockwise": "inspector",
    "installed_plugins": "plugins",
    "installed_registry": "current_registry",
    "load": "loading",
    "load_registry": "registry",
    "parse_lane": "lane_names",
    "problem_details": "problems",
    "read_contracts": "owned_contracts",
    "resolve": "resolution",
    "satisfies": "satisfying",
}

__all__ = [
    "Artifact",
    "DeclarationError",
    "DecodedTensor",
    "DecoderDeclaration",
    "Demand",
    "FaultError",
    "ImageLanes",
    "Inspection",
    "LaneName",
    "LoadReport",
    "LoadedWeights",
    "OwnedContracts",
    "PluginError",
    "PluginSelectionError",
    "Problem",
    "Refusal",
    "Registry",
    "RegistryError",
    "TensorhubError",
    "Unit",
    "UnsupportedLane",
    "Verdict",
    "Violation",
    "__version__",
    "contract_decoders_of",
    "derive_execution_lanes",
    "hookimpl",
    "implements_contract",
    "inspect",
    "inspect_hf_fp8_blockwise",
    "installed_plugins",
    "installed_registry",
    "load",
    "load_registry",
    "parse_lane",
    "problem_details",
    "read_contracts",
    "record_artifact",
    "resolve",
    "satisfies",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing the package alone costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

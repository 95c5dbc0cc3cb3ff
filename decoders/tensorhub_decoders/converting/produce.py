"""`tensorhub produce`: an unquantized checkpoint becomes one of the FP8 contracts, or more of an FP8 checkpoint does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.contract import Contract
from tensorhub_decoders.converting.choose_matrices import choose_matrices
from tensorhub_decoders.converting.config_rewriting import declare_blockwise
from tensorhub_decoders.converting.plan import ConversionPlan, Step, copied, plan_conversion
from tensorhub_decoders.converting.shard_writing import WrittenTensor

if TYPE_CHECKING:
    import torch

    from tensorhub_decoders.converting.convert import ConversionResult, Progress

#: The contracts that are produced.
PRODUCED: Final = ("hf.fp8-blockwise@1", "cozy.fp8-rowwise@1", "cozy.fp8-storage@1")


@attrs.frozen
class Production:
    """What is going to be produced: the plan, and the matrices that are quantized for it."""

    plan: ConversionPlan
    chosen: Mapping[str, Geometry]
    options: Mapping[str, str]


def plan_production(source: Inspection, contract: str, skip: Sequence[str], only: Sequence[str]) -> Production:
    """Work out what is written, from headers alone.

    `source` is in a plain contract, or in `contract` itself: its units are then copied as they are, and `only` says
    what else is quantized. If it is a component of a pipeline, the plan is for the pipeline: the other components are
    copied. Raises `Refusal` for every other source and for what `choose_matrices` and `plan_conversion` refuse.
    """
    facts = installed_registry().contracts[contract]
    _require_producible(source.require(), facts, only)
    chosen = choose_matrices(source, facts, skip, only)
    checkpoint, groups = source.checkpoint, source.groups
    assert checkpoint is not None  # a proved contract has both
    assert groups is not None

    def step_of(name: str) -> Step:
        return _quantized(name, chosen[name].shape, facts) if name in chosen else copied(checkpoint, name)

    config: dict[str, Any] | None = None
    if facts.declares:
        unquantized = {name: geometry for name, geometry in groups.unquantized.items() if name not in chosen}
        config = declare_blockwise(checkpoint.config, unquantized, [*source.layouts, *chosen], list(chosen))
    options = {"command": "produce", "skip": json.dumps(skip), "only": json.dumps(only)}
    return Production(plan_conversion(source, contract, step_of, config), chosen, options)


def produce(source: Inspection, production: Production, destination: Path, progress: Progress | None = None) -> ConversionResult:
    """Write a planned production; see `convert` for what is raised, and `values-not-finite` for what cannot be quantized."""
    from tensorhub_decoders.converting import fp8_quantization
    from tensorhub_decoders.converting.convert import convert

    quantizers = {
        "hf.fp8-blockwise@1": fp8_quantization.quantize_block_scaled,
        "cozy.fp8-rowwise@1": fp8_quantization.quantize_row_scaled,
    }
    contract = production.plan.contract

    def apply(step: Step, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        try:
            if contract not in quantizers:
                return {"weight": fp8_quantization.quantize_unscaled(tensors["weight"])}
            codes, scale = quantizers[contract](tensors["weight"])
        except fp8_quantization.NotFiniteError as error:
            found = f"{error.count:,} of {tensors['weight'].numel():,} that are infinite or NaN"
            remedy = "Find out where they come from, or leave the tensor unquantized with --skip."
            raise Refusal(
                [Violation(code="values-not-finite", object=step.read["weight"], expected="finite values", found=found, remedy=remedy)]
            ) from error
        return {"weight": codes, "scale": scale}

    return convert(source, production.plan, destination, apply, production.options, progress)


def _require_producible(source: Inspection, contract: Contract, only: Sequence[str]) -> None:
    registry = installed_registry()
    sources = [
        handle for edge in registry.conversions if edge.kind == "producible" and contract.handle in edge.to for handle in edge.source
    ]
    if source.contract not in (*sources, contract.handle):
        expected = f"{', '.join(sources)}, or {contract.handle} itself"
        remedy = "Quantize the unquantized original: what is rounded once is never rounded again."
        raise Refusal(
            [Violation(code="conversion-impossible", object=source.path, expected=expected, found=str(source.contract), remedy=remedy)],
            nearest=source.contract,
        )
    if source.contract == contract.handle and not only:
        found = f"a checkpoint in {contract.handle}: its {source.unit_count:,} units stay as they are"
        remedy = "Use it as it is, or say with --only which of its unquantized matrices are to be quantized as well."
        raise Refusal(
            [Violation(code="nothing-to-convert", object=source.path, expected="something to quantize", found=found, remedy=remedy)],
            nearest=contract.handle,
        )


def _quantized(name: str, shape: tuple[int, ...], contract: Contract) -> Step:
    """Return the step for a matrix: its codes, and the scale that the contract's form names, in the shape that it asks for."""
    written = {"weight": WrittenTensor(name, "F8_E4M3", shape)}
    if contract.block is not None:
        grid = (*shape[:-2], -(-shape[-2] // contract.block[0]), -(-shape[-1] // contract.block[1]))
        written["scale"] = WrittenTensor(f"{name}_scale_inv", "F32", grid)
    elif contract.scale_direction != "none":
        written["scale"] = WrittenTensor(f"{name}_scale", "F32", shape[:1])
    return Step("quantize", {"weight": name}, written)

"""`tensorhub produce`: an unquantized checkpoint becomes one of the FP8 contracts, or more of an FP8 checkpoint does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.contract import Contract, Form
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_decoders.converting.choose_matrices import choose_matrices
from tensorhub_decoders.converting.config_rewriting import declare
from tensorhub_decoders.converting.plan import ConversionPlan, Step, copied, plan_conversion
from tensorhub_decoders.converting.shard_writing import WrittenTensor

if TYPE_CHECKING:
    import torch

    from tensorhub_decoders.converting.convert import ConversionResult, Progress

#: What one scale of a contract is for.
ScaleSpan = Literal["blocks", "rows", "none"]


@attrs.frozen
class Production:
    """What is going to be produced."""

    #: What is written.
    plan: ConversionPlan
    #: The matrices that are quantized for it.
    chosen: Mapping[str, Geometry]
    #: What one scale of the result is for.
    span: ScaleSpan
    #: What decides on the result besides the source and the plan.
    options: Mapping[str, str]


def produced_contracts() -> tuple[str, ...]:
    """Return the contracts that can be produced of an unquantized checkpoint."""
    return tuple(dict.fromkeys(handle for edge in load_registry().conversions if edge.kind == "producible" for handle in edge.to))


def scale_span(contract: Contract) -> ScaleSpan:
    """Return what one scale of a contract is for."""
    return "none" if contract.scale_direction == "none" else "rows" if contract.block is None else "blocks"


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
    if facts.when_undeclared == "never":  # else what the source declares stays as it is: nothing, unless it is in the contract already
        unquantized = {name: geometry for name, geometry in groups.unquantized.items() if name not in chosen}
        config = declare(facts, checkpoint.config, unquantized, [*source.layouts, *chosen], list(chosen))
    options = {"command": "produce", "skip": json.dumps(skip), "only": json.dumps(only)}
    return Production(plan_conversion(source, contract, step_of, config), chosen, scale_span(facts), options)


def produce(source: Inspection, production: Production, destination: Path, progress: Progress | None = None) -> ConversionResult:
    """Write a planned production; see `convert` for what is raised, and `values-not-finite` for what cannot be quantized."""
    from tensorhub_decoders.converting import fp8_quantization
    from tensorhub_decoders.converting.convert import convert

    quantizers: Mapping[ScaleSpan, Callable[[torch.Tensor], Mapping[str, torch.Tensor]]] = {
        "blocks": lambda weight: _by_role(*fp8_quantization.quantize_block_scaled(weight)),
        "rows": lambda weight: _by_role(*fp8_quantization.quantize_row_scaled(weight)),
        "none": lambda weight: {"weight": fp8_quantization.quantize_unscaled(weight)},
    }

    def apply(step: Step, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        try:
            return quantizers[production.span](tensors["weight"])
        except fp8_quantization.NotFiniteError as error:
            found = f"{error.count:,} of {tensors['weight'].numel():,} that are infinite or NaN"
            remedy = "Find out where they come from, or leave the tensor unquantized with --skip."
            raise Refusal(
                [Violation(code="values-not-finite", object=step.read["weight"], expected="finite values", found=found, remedy=remedy)]
            ) from error

    return convert(source, production.plan, destination, apply, production.options, progress)


def _by_role(codes: torch.Tensor, scale: torch.Tensor) -> Mapping[str, torch.Tensor]:
    return {"weight": codes, "scale": scale}


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
    written = {"weight": WrittenTensor(name, contract.element, shape)}
    span = scale_span(contract)
    if span != "none":
        form = _form_of(name, shape, contract)
        scale = name.removesuffix(form.primary.suffix) + form.tensors["scale"].suffix
        written["scale"] = WrittenTensor(scale, "F32", shape[:1] if span == "rows" else _grid(shape, contract))
    return Step("quantize", {"weight": name}, written)


def _form_of(name: str, shape: tuple[int, ...], contract: Contract) -> Form:
    """Return the form of a contract that a chosen matrix takes: `choose_matrices` chooses those that have one."""
    return next(form for form in contract.form if name.endswith(form.primary.suffix) and len(shape) in map(len, form.primary.shapes))


def _grid(shape: tuple[int, ...], contract: Contract) -> tuple[int, ...]:
    assert contract.block is not None  # its scales are of blocks
    return (*shape[:-2], -(-shape[-2] // contract.block[0]), -(-shape[-1] // contract.block[1]))

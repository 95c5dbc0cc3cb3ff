"""`tensorhub decode`: a checkpoint in one of the FP8 contracts becomes an unquantized one, as its reference dequant says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_decoders.converting.config_rewriting import undeclare
from tensorhub_decoders.converting.plan import ConversionPlan, Step, copied, plan_conversion
from tensorhub_decoders.converting.shard_writing import WrittenTensor
from tensorhub_decoders.reading import torch_dtype

if TYPE_CHECKING:
    import torch

    from tensorhub_decoders.converting.convert import ConversionResult, Progress

#: What an unquantized checkpoint may be of: the contract, and the dtype of the format.
WIDE_FLOAT: Final = {"bf16": ("plain.bf16@1", "BF16"), "f16": ("plain.f16@1", "F16"), "f32": ("plain.f32@1", "F32")}


@attrs.frozen
class Decoding:
    """What is going to be decoded: the plan, and what `--dtype` and `--allow-nan` said."""

    plan: ConversionPlan
    dtype: str
    allow_nan: bool


def plan_decoding(source: Inspection, dtype: str, *, allow_nan: bool) -> Decoding:
    """Work out what is written, from headers alone: each unit unquantized, each other matrix in the same dtype, the rest as it is.

    `dtype` is a key of `WIDE_FLOAT`. If `source` is a component of a pipeline, the plan is for the pipeline: the other
    components are copied. Raises `Refusal` for a source that is in no FP8 contract that has an exact decoding, and for
    what `plan_conversion` refuses.
    """
    contract, stored = WIDE_FLOAT[dtype]
    edges = [edge for edge in installed_registry().conversions if edge.kind == "decodable" and contract in edge.to]
    sources = [handle for edge in edges for handle in edge.source]
    if source.require().contract not in sources:
        unquantized = str(source.contract).startswith("plain.")
        remedy = "It is unquantized already." if unquantized else "Use an export in a contract that is decoded here."
        found = str(source.contract)
        raise Refusal(
            [Violation(code="conversion-impossible", object=source.path, expected=" or ".join(sources), found=found, remedy=remedy)],
            nearest=source.contract,
        )
    checkpoint, groups = source.checkpoint, source.groups
    assert checkpoint is not None  # a proved contract has both
    assert groups is not None

    def step_of(name: str) -> Step | None:
        if name in source.sidecars:
            return None
        shape = checkpoint.tensors[name].shape
        written = {"weight": WrittenTensor(name, stored, shape)}
        if name in source.unit_tensors:
            return Step("decode", source.unit_tensors[name], written)
        if name in groups.unquantized and len(shape) > 1 and groups.unquantized[name].dtype != stored:
            return Step("cast", {"weight": name}, written)
        return copied(checkpoint, name)

    config = undeclare(checkpoint.config) if checkpoint.declarations else None
    return Decoding(plan_conversion(source, contract, step_of, config), dtype, allow_nan)


def decode(source: Inspection, decoding: Decoding, destination: Path, progress: Progress | None = None) -> ConversionResult:
    """Write a planned decoding; see `convert` for what is raised.

    Besides, `Refusal` for values that overflow the dtype (`values-overflow`) and NaN in a decoded weight
    (`values-nan`), and `FaultError` if a decoded weight is not, bit for bit, what the reference dequant gives.
    """
    from tensorhub_decoders.converting.convert import convert
    from tensorhub_decoders.converting.dequantize import UnfitValuesError, cast_unquantized, decode_unit

    dtype = torch_dtype(WIDE_FLOAT[decoding.dtype][1])
    contract = str(source.contract)

    def apply(step: Step, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        name = step.read["weight"]
        try:
            if step.action == "cast":
                return {"weight": cast_unquantized(tensors["weight"], dtype)}
            return {"weight": decode_unit(contract, name, tensors, dtype, allow_nan=decoding.allow_nan)}
        except UnfitValuesError as error:
            raise _unfit(name, error.infinities, error.nans, tensors["weight"].numel(), decoding.dtype) from error

    options = {"command": "decode", "allow_nan": str(decoding.allow_nan).lower()}
    return convert(source, decoding.plan, destination, apply, options, progress)


def _unfit(name: str, infinities: int, nans: int, elements: int, dtype: str) -> Refusal:
    violations = []
    if infinities:
        remedy = "Decode to bf16 or f32, which reach further." if dtype == "f16" else "Find out where its scales come from."
        found = f"{infinities:,} of {elements:,} that become infinite"
        violations.append(Violation(code="values-overflow", object=name, expected=f"values that {dtype} holds", found=found, remedy=remedy))
    if nans:
        remedy = "Find out where they come from, or keep them with --allow-nan."
        violations.append(
            Violation(
                code="values-nan",
                object=name,
                expected="a number for each code",
                found=f"{nans:,} of {elements:,} that are NaN",
                remedy=remedy,
            )
        )
    return Refusal(violations)

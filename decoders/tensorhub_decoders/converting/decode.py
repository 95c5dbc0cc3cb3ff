"""`tensorhub decode`: a quantized checkpoint becomes an unquantized one, by the decoder that `load` would run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from tensorhub_contracts import Demand, derive_execution_lanes, satisfies
from tensorhub_contracts.errors import FaultError, Refusal, Violation
from tensorhub_contracts.hub.demand import EVERY_COMPONENT
from tensorhub_contracts.hub.verdict import ComponentVerdict
from tensorhub_contracts.inspection.derived import part_of
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.loading import run_decoder
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_decoders.converting.config_rewriting import undeclare
from tensorhub_decoders.converting.plan import ConversionPlan, Step, copied, plan_conversion
from tensorhub_decoders.converting.shard_writing import WrittenTensor
from tensorhub_decoders.decoding import upcasts
from tensorhub_decoders.reading import TensorReader, torch_dtype

if TYPE_CHECKING:
    import torch

    from tensorhub_decoders.converting.convert import ConversionResult, Progress

#: About how many bytes are decoded at a time, unless one weight alone takes more.
BATCH_BYTES: Final = 32 << 20


@attrs.frozen
class Decoding:
    """What is going to be decoded."""

    #: What is written.
    plan: ConversionPlan
    #: Who decodes it, and in which lane.
    verdict: ComponentVerdict
    #: The dtype of decoded weights, as the safetensors format calls it.
    dtype: str
    #: The reference dequant that decoded weights are compared with, or empty if there is none for the source's contract.
    reference: str
    #: Whether NaN are kept.
    allow_nan: bool


def decoded_contracts() -> tuple[str, ...]:
    """Return the contracts that something can be decoded to."""
    return tuple(dict.fromkeys(handle for edge in load_registry().conversions if edge.kind == "decodable" for handle in edge.to))


def plan_decoding(source: Inspection, contract: str, *, allow_nan: bool) -> Decoding:
    """Work out what is written, from headers alone: each unit unquantized, each other matrix in the same dtype, the rest as it is.

    `contract` is one of `decoded_contracts`. If `source` is a component of a pipeline, the plan is for the pipeline: the other
    components are copied. Raises `Refusal` for a source that no decoder here upcasts to the dtype of `contract`, and for what
    `plan_conversion` refuses.
    """
    (stored,) = installed_registry().contracts[contract].unquantized.matrix_dtypes
    verdict = _verdict(source.require(), stored)
    checkpoint, groups, facts = source.checkpoint, source.groups, source.facts
    assert checkpoint is not None  # a proved contract has all three
    assert groups is not None
    assert facts is not None

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
    declaring = (each.where.partition(":")[0] for each in checkpoint.declarations if each.kind != "header_metadata")
    outdated = tuple(sorted({name for name in declaring if name != "config.json"}))
    plan = plan_conversion(source, contract, step_of, config, outdated)
    return Decoding(plan, verdict, stored, _reference(facts.reference_dequant), allow_nan)


def decode(source: Inspection, decoding: Decoding, destination: Path, progress: Progress | None = None) -> ConversionResult:
    """Write a planned decoding; see `convert` for what is raised.

    Besides, `Refusal` for values that overflow the dtype (`values-overflow`) and NaN in a decoded weight (`values-nan`), and
    `FaultError` if the decoder does not give what the plan says, or not, bit for bit, what the reference dequant gives.
    """
    from tensorhub_decoders.converting.convert import as_stored, convert
    from tensorhub_decoders.converting.decoded_values import UnfitValuesError, cast_unquantized, require_numbers, require_reference

    dtype = torch_dtype(decoding.dtype)

    def fetch(reader: TensorReader, steps: Sequence[Step]) -> Iterator[tuple[Step, Mapping[str, torch.Tensor]]]:
        yield from as_stored(reader, [step for step in steps if step.action == "cast"])
        for batch in _batches([step for step in steps if step.action == "decode"]):
            for step, decoded in _decoded(source, decoding, batch):
                if decoding.reference:
                    stored = {role: reader.read(name) for role, name in step.read.items()}
                    require_reference(step.read["weight"], decoding.reference, stored, decoded)
                    del stored
                yield step, {"weight": decoded}
                del decoded

    def apply(step: Step, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        weight = tensors["weight"]
        try:
            if step.action == "cast":
                return {"weight": cast_unquantized(weight, dtype)}
            require_numbers(weight, allow_nan=decoding.allow_nan)
        except UnfitValuesError as error:
            raise _unfit(step.read["weight"], error.infinities, error.nans, weight.numel(), decoding.dtype) from error
        return tensors

    options = {"command": "decode", "allow_nan": str(decoding.allow_nan).lower()}
    return convert(source, decoding.plan, destination, apply, options, progress, fetch=fetch)


def _verdict(source: Inspection, dtype: str) -> ComponentVerdict:
    """Return the best lane of this installation in which a decoder upcasts the units of a checkpoint to a dtype."""
    image = derive_execution_lanes()
    registry = installed_registry()
    readers = [each for each in image.contracts if registry.contracts[each.contract].quantized]
    lanes = [lane for lane in image.all_lanes if upcasts(lane, dtype)]
    for lane in lanes:
        if any(each.contract == source.contract and lane in each.all_lanes for each in readers):
            try:
                return satisfies(source, image, Demand(lanes={EVERY_COMPONENT: lane})).components[0]
            except Refusal as refusal:
                if "floor-unmet" not in refusal.codes:
                    raise
    sources = dict.fromkeys(each.contract for each in readers if set(each.all_lanes).intersection(lanes))
    facts = source.facts
    remedy = f"Use an export in a contract that is decoded to {dtype} here, or install a plugin that decodes this one."
    if facts is not None and not facts.quantized:
        remedy = "It is unquantized already."
    raise Refusal(
        [
            Violation(
                code="conversion-impossible",
                object=source.path,
                expected=" or ".join(handle for handle in registry.contracts if handle in sources),
                found=str(source.contract),
                remedy=remedy,
            )
        ],
        nearest=source.contract,
    )


def _reference(name: str) -> str:
    from tensorhub_decoders.upcast.reference import REFERENCE_DEQUANTS

    return name if name in REFERENCE_DEQUANTS else ""


def _batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps in order, as many at a time as `BATCH_BYTES` hold, and at least one."""
    batch: list[Step] = []
    size = 0
    for step in steps:
        if batch and size + step.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(step)
        size += step.size
    if batch:
        yield batch


def _decoded(source: Inspection, decoding: Decoding, steps: Sequence[Step]) -> Iterator[tuple[Step, torch.Tensor]]:
    """Yield what the decoder makes of some units, each once, as the plan says that it is written."""
    left = {step.read["weight"]: step for step in steps}
    decoder = decoding.verdict.decoder
    for name, tensor, _ in run_decoder(part_of(source, left), decoding.verdict, dtype=decoding.dtype):
        step = left.pop(name, None)
        if step is None:
            raise FaultError([f"{decoder}: yields {name}, for which it was not asked, or which it has yielded before"])
        planned = step.written["weight"]
        if tensor.dtype is not torch_dtype(planned.dtype) or tuple(tensor.shape) != planned.shape or tensor.device.type != "cpu":
            found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            raise FaultError([f"{decoder}: gives {name} as {found}, where {planned.dtype} {planned.shape} on the CPU was asked for"])
        yield step, tensor
        del tensor
    if left:
        raise FaultError([f"{decoder}: yields nothing for {', '.join(left)}"])


def _unfit(name: str, infinities: int, nans: int, elements: int, dtype: str) -> Refusal:
    violations = []
    if infinities:
        remedy = "Decode to BF16 or F32, which reach further." if dtype == "F16" else "Find out where its scales come from."
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

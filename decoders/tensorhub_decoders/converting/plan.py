"""What a conversion is going to write, worked out from headers alone and proved to be in its contract before a value is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs

from tensorhub_contracts._version import __version__
from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.header import parse_header
from tensorhub_contracts.checkpoints.header_metadata import METADATA_KEY
from tensorhub_contracts.checkpoints.shard_index import NUMBERED
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.inspector import inspect_planned
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_decoders.converting.companion_files import Others, other_components
from tensorhub_decoders.converting.shard_writing import FilePlan, WrittenTensor, plan_file

#: What happens to a tensor: it is quantized, decoded, cast to another dtype, or copied byte for byte.
Action = Literal["quantize", "decode", "cast", "copy"]


@attrs.frozen
class Step:
    """One tensor of the source, or one unit, and what is written for it."""

    #: What happens to it.
    action: Action
    #: The names in the source, by role; `weight` is among the roles.
    read: Mapping[str, str]
    #: What is written, by role.
    written: Mapping[str, WrittenTensor]

    @property
    def size(self) -> int:
        """The bytes that are written."""
        return sum(each.size for each in self.written.values())


@attrs.frozen
class ShardPlan:
    """One file that is written."""

    #: Its name.
    name: str
    #: Its layout.
    file: FilePlan
    #: What is written to it, in the order in which the weights lie in the source.
    steps: tuple[Step, ...]


@attrs.frozen
class ConversionPlan:
    """Everything that a conversion writes."""

    #: The contract that it is in.
    contract: str
    #: The files of weights.
    shards: tuple[ShardPlan, ...]
    #: The name of their index, or empty.
    index_name: str
    #: The new `config.json`, or None if the source's is copied as it is.
    config: Mapping[str, Any] | None
    #: The part of a pipeline that is converted, or empty.
    component: str
    #: The parts of the pipeline that are copied.
    others: Others
    #: The files beside the source's weights that declare what the result is no longer in, and are not copied.
    outdated: tuple[str, ...] = ()

    def steps(self, action: Action) -> Iterator[Step]:
        """Yield the steps of one kind."""
        return (step for shard in self.shards for step in shard.steps if step.action == action)

    def place(self, name: str) -> str:
        """Return the path below DST of a file that is converted or lies beside those."""
        return f"{self.component}/{name}" if self.component else name

    @property
    def copies(self) -> dict[str, FilePlan]:
        """The shards of the other components by their paths below SRC and DST; the bytes after the header are one piece, without a name."""
        return {
            f"{name}/{shard}": FilePlan(header.raw, {"": 8 + header.length}, header.file_size)
            for name, other in self.others.items()
            if other is not None
            for shard, header in other.headers.items()
        }

    @property
    def files(self) -> dict[str, FilePlan]:
        """Every safetensors file that is written, by its path below DST."""
        return {**{self.place(shard.name): shard.file for shard in self.shards}, **self.copies}

    @property
    def weight_map(self) -> dict[str, str]:
        """The shard of each tensor that is written."""
        return {each.name: shard.name for shard in self.shards for step in shard.steps for each in step.written.values()}

    @property
    def total_size(self) -> int:
        """The bytes of all tensors that are written, without those of other components."""
        return sum(shard.file.payload_size for shard in self.shards)


def plan_conversion(
    inspection: Inspection,
    contract: str,
    step_of: Callable[[str], Step | None],
    config: Mapping[str, Any] | None,
    outdated: tuple[str, ...] = (),
) -> ConversionPlan:
    """Ask `step_of` for each tensor of a proved source, in stored order, and lay out the shards; None leaves a tensor out.

    Each tensor stays in the shard that it lies in. A shard of which nothing is left is not written, and the numbers of
    the others close up. Raises `Refusal` if what would be written is not in `contract`, with every reason, and if the
    source is a component of a pipeline that is not whole.
    """
    checkpoint = inspection.require().checkpoint
    assert checkpoint is not None  # a proved contract has one
    others = other_components(checkpoint)
    steps_in: dict[str, tuple[Step, ...]] = {}
    for shard, header in checkpoint.headers.items():
        names = sorted(header.tensors, key=lambda name: header.tensors[name].data_offsets)
        steps = (step_of(name) for name in names if checkpoint.shard_of[name] == shard)
        steps_in[shard] = tuple(step for step in steps if step is not None)
    shards = []
    for shard, name in _names_of({shard for shard, steps in steps_in.items() if steps}, tuple(steps_in)).items():
        kept = {key: text for key, text in checkpoint.headers[shard].metadata.items() if key != METADATA_KEY}
        metadata = {**kept, **_provenance(checkpoint, contract)}
        written = [each for step in steps_in[shard] for each in step.written.values()]
        shards.append(ShardPlan(name, plan_file(written, metadata), steps_in[shard]))
    plan = ConversionPlan(contract, tuple(shards), _index_name(checkpoint, len(shards)), config, checkpoint.component, others, outdated)
    _prove(plan, checkpoint)
    return plan


def copied(checkpoint: Checkpoint, name: str) -> Step:
    """Return the step that copies a tensor byte for byte."""
    geometry = checkpoint.tensors[name]
    return Step("copy", {"weight": name}, {"weight": WrittenTensor(name, geometry.dtype, geometry.shape)})


def _names_of(kept: set[str], shards: tuple[str, ...]) -> dict[str, str]:
    """Return the new name of each shard that is kept: its own, unless a numbered shard of its family is gone."""
    names = {}
    for shard in shards:
        matched = NUMBERED.match(shard)
        if shard in kept and matched:
            family = [each for each in shards if (other := NUMBERED.match(each)) and (other[1], other[3]) == (matched[1], matched[3])]
            left = [each for each in family if each in kept]
            if len(left) < len(family):
                names[shard] = f"{matched[1]}-{left.index(shard) + 1:05}-of-{len(left):05}.safetensors"
                continue
        if shard in kept:
            names[shard] = shard
    return names


def _index_name(checkpoint: Checkpoint, shards: int) -> str:
    """Return the name of the index: the source's, or the usual one if several shards are written and the source has no index."""
    if checkpoint.index_name or shards < 2:
        return checkpoint.index_name
    first = next(iter(checkpoint.headers))  # several shards without an index are numbered, or one with others beside it
    matched = NUMBERED.match(first)
    return f"{matched[1] if matched else first.removesuffix('.safetensors')}.safetensors.index.json"


def _provenance(checkpoint: Checkpoint, contract: str) -> dict[str, str]:
    return {
        "format": "pt",
        "tensorhub.contract": contract,
        "tensorhub.produced_by": f"tensorhub-contracts {__version__}",
        "tensorhub.source_headers": checkpoint.headers_digest,
    }


def _prove(plan: ConversionPlan, source: Checkpoint) -> None:
    """Judge the headers that would be written as `tensorhub inspect` judges those of files.

    Of the files that are written, `config.json` alone can declare something. No name is written twice: a tensor that has the
    name that a scale would get is a scale without a quantized weight, for which the source is refused.
    """
    headers = {each.name: parse_header(each.file.header, file_size=each.file.size, name=each.name) for each in plan.shards}
    config = source.config if plan.config is None else plan.config
    found = inspect_planned(headers, config, path=source.path, component=source.component, index_name=plan.index_name).require()
    if found.contract != plan.contract:
        raise Refusal(
            [
                Violation(
                    code="contract-mismatch",
                    object=source.path,
                    expected=plan.contract,
                    found=f"{found.contract}, if it were written",
                    remedy="Choose other tensors: as chosen, what is written would be read as another layout.",
                )
            ]
        )

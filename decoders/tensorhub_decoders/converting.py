"""Carries out a planned conversion: one tensor in memory at a time, one shard after another, all of it or nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import torch

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoint import Checkpoint
from tensorhub_contracts.errors import FaultError, Refusal, Violation
from tensorhub_contracts.inspection import Inspection
from tensorhub_decoders.companion_files import CompanionFiles, companion_files, folder_of
from tensorhub_decoders.conversion_plan import ConversionPlan, Step
from tensorhub_decoders.conversion_request import conversion_request, require_unchanged
from tensorhub_decoders.output_errors import output_error
from tensorhub_decoders.reading import TensorReader
from tensorhub_decoders.shard_writing import ShardFile, write_whole
from tensorhub_decoders.unfinished_output import UnfinishedOutput

#: Makes what a step writes from what it reads, by role. Raises `Refusal` for values that cannot be converted.
CarryOut = Callable[[Step, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]

#: Called with how many bytes of the result there are, and how many there will be.
Progress = Callable[[int, int], None]

#: Bytes that are copied at a time.
_PIECE: Final = 8 << 20


class Converted(msgspec.Struct, frozen=True):
    """What there is at the end: the inspection of DST, the files beside the weights, and how many shards earlier runs had finished."""

    inspection: Inspection
    companions: CompanionFiles
    resumed: int


def convert(
    source: Inspection, plan: ConversionPlan, destination: Path, carry_out: CarryOut, options: Mapping[str, str], progress: Progress | None
) -> Converted:
    """Write a planned conversion to `destination`, by way of the folder `destination`.partial.

    `options` names everything besides the source and the plan that decides on a value. A rerun with the same source
    and options keeps the shards that are finished. Raises `Refusal` if the values of a tensor cannot be converted
    (every such tensor is listed, and nothing is left behind), if the destination exists, if the source changes; and
    `OutputError` for a full disk and the like.
    """
    checkpoint = source.checkpoint
    assert checkpoint is not None  # a proved contract has one
    request = conversion_request(checkpoint, plan, options)
    try:
        with UnfinishedOutput(destination, request) as output:
            companions = companion_files(checkpoint)
            resumed = len(plan.shards)
            if not output.published:
                with _nothing_left(output):
                    resumed = _write_shards(source, plan, output, carry_out, progress)
                    require_unchanged(checkpoint, request)
                    _write_companions(checkpoint, plan, companions, output)
                    _proved(output.checkpoint, plan)
                output.publish()
            found = _proved(output.destination, plan)
            output.remove()
            return Converted(found, companions, resumed)
    except OSError as error:
        raise output_error(error, plan, destination) from error


def _write_shards(
    source: Inspection, plan: ConversionPlan, output: UnfinishedOutput, carry_out: CarryOut, progress: Progress | None
) -> int:
    """Write the shards that are not finished; return how many were. After the first refusal, only look for more of them."""
    finished = [shard for shard in plan.shards if output.holds(shard.name, shard.file)]
    output.keep_only({shard.name for shard in finished})
    done = sum(each.size for shard in finished for step in shard.steps for each in step.written.values())
    violations: list[Violation] = []
    with TensorReader(source) as reader:
        for shard in plan.shards:
            if shard in finished:
                continue
            with ShardFile(output.checkpoint / shard.name, shard.file) as file:
                for step in shard.steps:
                    if step.action == "copy":
                        if not violations:
                            _copy(step, reader, file)
                    else:
                        _convert_one(step, reader, file, carry_out, violations)
                    done += sum(each.size for each in step.written.values())
                    if progress is not None:
                        progress(done, plan.total_size)
                if not violations:
                    file.finish()
                    output.note(shard.name, shard.file)
    if violations:
        raise Refusal(violations)
    return len(finished)


def _copy(step: Step, reader: TensorReader, file: ShardFile) -> None:
    """Copy the bytes of a tensor, whatever its dtype, in pieces of bounded size."""
    tensor = step.written["weight"]
    buffer = memoryview(bytearray(min(_PIECE, tensor.size)))
    for offset in range(0, tensor.size, _PIECE):
        piece = buffer[: min(_PIECE, tensor.size - offset)]
        reader.read_into(step.read["weight"], piece, offset)
        file.write(tensor.name, offset, piece)


def _convert_one(step: Step, reader: TensorReader, file: ShardFile, carry_out: CarryOut, violations: list[Violation]) -> None:
    """Convert one tensor and write what comes of it; note why it cannot be."""
    try:
        made = carry_out(step, {role: reader.read(name) for role, name in step.read.items()})
    except Refusal as refusal:
        if "file-changed" in refusal.codes:
            raise
        violations += refusal.violations
        return
    for role, tensor in made.items():
        if not violations:
            file.write(step.written[role].name, 0, _bytes_of(tensor))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, without a copy; valid as long as the tensor is."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _write_companions(checkpoint: Checkpoint, plan: ConversionPlan, companions: CompanionFiles, output: UnfinishedOutput) -> None:
    """Write the other files: copies first, then the index, and `config.json` last."""
    output.keep_only({shard.name for shard in plan.shards})
    folder = folder_of(checkpoint)
    for name in companions.copied:
        write_whole(output.checkpoint / name, (folder / name).read_bytes())
    if plan.index_name:
        index = {"metadata": {"total_size": plan.total_size}, "weight_map": dict(sorted(plan.weight_map.items()))}
        write_whole(output.checkpoint / plan.index_name, json.dumps(index, indent=2).encode("ascii") + b"\n")
    if plan.config is not None:
        write_whole(output.checkpoint / "config.json", json.dumps(plan.config, indent=2).encode("ascii") + b"\n")
    elif (folder / "config.json").is_file():
        write_whole(output.checkpoint / "config.json", (folder / "config.json").read_bytes())


def _proved(folder: Path, plan: ConversionPlan) -> Inspection:
    """Inspect what was written, as a user would. What the plan proved and the files do not show is a fault."""
    found = inspect(folder)
    if found.contract != plan.contract or found.checkpoint is None:
        raise FaultError([f"{folder} was to be in {plan.contract} and is not: {found.violations}"])
    if {name: header.raw for name, header in found.checkpoint.headers.items()} != {each.name: each.file.header for each in plan.shards}:
        raise FaultError([f"{folder} has other headers than were written"])
    return found


@contextlib.contextmanager
def _nothing_left(output: UnfinishedOutput) -> Iterator[None]:
    """Remove what was written if the conversion is refused: another try would be another conversion."""
    try:
        yield
    except Refusal:
        output.remove()
        raise

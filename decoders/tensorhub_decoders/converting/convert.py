"""Carries out a planned conversion: a few tensors in memory at a time, one shard after another, all of it or nothing."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import attrs
import torch

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.files import open_file
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tensorhub_contracts.errors import FaultError, Refusal, Violation
from tensorhub_contracts.inspection.derived import renamed
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_decoders.converting.companion_files import MODEL_INDEX, CompanionFiles, companion_bytes, companion_files, folder_of
from tensorhub_decoders.converting.output_errors import output_error
from tensorhub_decoders.converting.plan import ConversionPlan, ShardPlan, Step
from tensorhub_decoders.converting.resume import UnfinishedOutput, conversion_request, require_unchanged
from tensorhub_decoders.converting.shard_writing import FilePlan, ShardFile, write_whole
from tensorhub_decoders.exact_torch import exact_torch
from tensorhub_decoders.reading import TensorReader

#: Yields each of some steps of one shard with its tensors by role, in any order, and holds none of them afterwards.
Fetch = Callable[[TensorReader, Sequence[Step]], Iterator[tuple[Step, Mapping[str, torch.Tensor]]]]

#: Makes what a step writes of what was fetched for it, by role. Raises `Refusal` for values that cannot be converted.
Apply = Callable[[Step, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]

#: Called with how many bytes of the result there are, and how many there will be.
Progress = Callable[[int, int], None]

#: Bytes that are copied at a time.
_PIECE: Final = 8 << 20


@attrs.frozen
class ConversionResult:
    """What there is at the end."""

    #: The inspection of what was converted.
    inspection: Inspection
    #: The files beside it.
    companions: CompanionFiles
    #: How many shards an earlier run had finished.
    resumed: int


def as_stored(reader: TensorReader, steps: Sequence[Step]) -> Iterator[tuple[Step, Mapping[str, torch.Tensor]]]:
    """Fetch what steps read, as it is stored, one step at a time."""
    return ((step, {role: reader.read(name) for role, name in step.read.items()}) for step in steps)


def convert(
    source: Inspection,
    plan: ConversionPlan,
    destination: Path,
    apply: Apply,
    options: Mapping[str, str],
    progress: Progress | None,
    *,
    fetch: Fetch = as_stored,
) -> ConversionResult:
    """Write a planned conversion to `destination`, by way of the folder `destination`.partial.

    What is copied is copied byte for byte; for every other step, `fetch` brings tensors and `apply` makes of them what is written.
    For a component of a pipeline, what is written is a pipeline: the other components are copied, byte for byte.
    `options` names everything besides the source and the plan that decides on a value. A rerun with the same source
    and options keeps the shards that are finished. Raises `Refusal` if the values of a tensor cannot be converted
    (every such tensor is listed, and nothing is left behind), if the destination exists, if the source changes; and
    `OutputError` for a full disk and the like.
    """
    checkpoint = source.checkpoint
    assert checkpoint is not None  # a proved contract has one
    try:
        request = conversion_request(checkpoint, plan, options)
        companions = companion_files(checkpoint, plan.others, plan.outdated)
        with exact_torch(), UnfinishedOutput(destination, request) as output:
            resumed = len(plan.shards)
            if not output.published:
                held = {place for place, file in plan.files.items() if output.holds(place, file)}
                output.keep_only(held)
                resumed = sum(plan.place(shard.name) in held for shard in plan.shards)
                advance = _Advance(plan, held, progress)
                with _nothing_left(output):
                    _write_shards(source, plan, output, (fetch, apply), held, advance)
                    _copy_others(checkpoint, plan, output, held, advance)
                    require_unchanged(checkpoint, plan, request)
                    _write_companions(checkpoint, plan, companions, output)
                    output.unmark()
                    written = _proved(output.checkpoint, plan)
                output.publish()
                found = renamed(written, str(output.destination))  # not proved again: not a byte has changed
            else:
                found = _proved(output.destination, plan)
            output.remove()
            return ConversionResult(found, companions, resumed)
    except OSError as error:
        raise output_error(error, plan, destination) from error


class _Advance:
    """Counts the bytes of the result, from those of finished shards on, and reports them to `progress`."""

    def __init__(self, plan: ConversionPlan, held: Collection[str], progress: Progress | None) -> None:
        self._done = sum(file.payload_size for place, file in plan.files.items() if place in held)
        self._total = sum(file.payload_size for file in plan.files.values())
        self._progress = progress

    def __call__(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)


def _write_shards(
    source: Inspection,
    plan: ConversionPlan,
    output: UnfinishedOutput,
    making: tuple[Fetch, Apply],
    held: Collection[str],
    advance: _Advance,
) -> None:
    """Write the converted shards that are not finished. After the first refusal, only look for more of them."""
    violations: list[Violation] = []
    with TensorReader(source) as reader:
        for shard in plan.shards:
            place = plan.place(shard.name)
            if place in held:
                continue
            with ShardFile(output.path(place), shard.file) as file:
                for step in shard.steps:
                    if step.action == "copy":
                        if not violations:
                            _copy(step, reader, file)
                        advance(step.size)
                _make(shard, reader, file, making, violations, advance)
                if not violations:
                    file.finish()
                    output.note(place, shard.file)
    if violations:
        raise Refusal(violations)


def _copy_others(checkpoint: Checkpoint, plan: ConversionPlan, output: UnfinishedOutput, held: Collection[str], advance: _Advance) -> None:
    """Copy the shards of the other components that are not there, each as a whole, whatever its bytes mean."""
    for place, file in plan.copies.items():
        if place not in held:
            with open_file(Path(checkpoint.path) / place, name=place) as source, ShardFile(output.path(place), file) as copy:
                _copy_file(source, copy, place, file, advance)
                copy.finish()
            output.note(place, file)


def _copy_file(source: BinaryIO, copy: ShardFile, place: str, file: FilePlan, advance: _Advance) -> None:
    """Copy what follows the header, in pieces of bounded size. Raises `Refusal` if it is no longer the file that was inspected."""
    header = len(file.header).to_bytes(8, "little") + file.header
    same = os.fstat(source.fileno()).st_size == file.size and source.read(len(header)) == header
    for offset in range(0, file.payload_size, _PIECE) if same else ():
        piece = source.read(min(_PIECE, file.payload_size - offset))
        copy.write("", offset, piece)
        advance(len(piece))
    if not same or source.tell() != file.size:
        expected, remedy = "the file whose header was inspected", "Inspect the checkpoint again, and do not write to it."
        raise Refusal([Violation(code="file-changed", object=place, expected=expected, found="another size or header", remedy=remedy)])


def _copy(step: Step, reader: TensorReader, file: ShardFile) -> None:
    """Copy the bytes of a tensor, whatever its dtype, in pieces of bounded size."""
    tensor = step.written["weight"]
    buffer = memoryview(bytearray(min(_PIECE, tensor.size)))
    for offset in range(0, tensor.size, _PIECE):
        piece = buffer[: min(_PIECE, tensor.size - offset)]
        reader.read_into(step.read["weight"], piece, offset)
        file.write(tensor.name, offset, piece)


def _make(
    shard: ShardPlan, reader: TensorReader, file: ShardFile, making: tuple[Fetch, Apply], violations: list[Violation], advance: _Advance
) -> None:
    """Convert what is not copied of a shard, and write what comes of it; note why a tensor cannot be converted."""
    fetch, apply = making
    for step, tensors in fetch(reader, [step for step in shard.steps if step.action != "copy"]):
        try:
            made = apply(step, tensors)
        except Refusal as refusal:
            violations += refusal.violations
            made = {}
        if not violations:
            _write(step, made, file)
        advance(step.size)
        del tensors, made  # before the next ones come: each may be as large as memory allows


def _write(step: Step, made: Mapping[str, torch.Tensor], file: ShardFile) -> None:
    for role, tensor in made.items():
        file.write(step.written[role].name, 0, _bytes_of(tensor))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, without a copy; valid as long as the tensor is."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _write_companions(checkpoint: Checkpoint, plan: ConversionPlan, companions: CompanionFiles, output: UnfinishedOutput) -> None:
    """Write the other files, and make the folders of components that hold none."""
    for name in plan.others:
        output.path(name).mkdir(exist_ok=True)
    for place, content in _other_files(checkpoint, plan, companions):
        write_whole(output.path(place), content)


def _other_files(checkpoint: Checkpoint, plan: ConversionPlan, companions: CompanionFiles) -> Iterator[tuple[str, bytes]]:
    """Yield path and content: copies first, then the index, then `config.json`, and the list of a pipeline's components last."""
    folder = folder_of(checkpoint)
    root = Path(checkpoint.path) if plan.component else folder
    listing = [name for name in companions.copied if plan.component and name == MODEL_INDEX]
    yield from ((name, companion_bytes(checkpoint, root / name)) for name in companions.copied if name not in listing)
    if plan.index_name:
        index = {"metadata": {"total_size": plan.total_size}, "weight_map": dict(sorted(plan.weight_map.items()))}
        yield plan.place(plan.index_name), json.dumps(index, indent=2).encode("ascii") + b"\n"
    if plan.config is not None:
        yield plan.place("config.json"), json.dumps(plan.config, indent=2).encode("ascii") + b"\n"
    elif (folder / "config.json").is_file():
        yield plan.place("config.json"), companion_bytes(checkpoint, folder / "config.json")
    yield from ((name, companion_bytes(checkpoint, root / name)) for name in listing)


def _proved(folder: Path, plan: ConversionPlan) -> Inspection:
    """Inspect what was written, as a user would. What the plan proved and the files do not show is a fault."""
    found = inspect(folder, plan.component, contract=plan.contract)  # by name: what was written is known, whatever its values look like
    if found.contract != plan.contract or found.checkpoint is None:
        raise FaultError([f"{folder} was to be in {plan.contract} and is not: {found.violations}"])
    if {name: header.raw for name, header in found.checkpoint.headers.items()} != {each.name: each.file.header for each in plan.shards}:
        raise FaultError([f"{folder} has other headers than were written"])
    for name, other in plan.others.items():
        if other is not None and read_checkpoint(folder, name).headers_digest != other.headers_digest:
            raise FaultError([f"{folder / name} is no copy of the component"])
    return found


@contextlib.contextmanager
def _nothing_left(output: UnfinishedOutput) -> Iterator[None]:
    """Remove what was written if the conversion is refused: another try would be another conversion."""
    try:
        yield
    except Refusal:
        output.remove()
        raise

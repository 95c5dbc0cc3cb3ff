"""Reads every tensor of a checkpoint with all cores, as it is stored or decoded: one reader for both, which opens each shard once.

Decoding goes in strips of rows: each is read, converted while it is in cache, and written to its place. One Python thread a
core, each with one torch thread: a strip is too small to be shared, and threads that wait for nobody hold up under a busy
neighbour.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import attrs
import torch

from tensorhub_contracts import DecodedTensor, Inspection
from tensorhub_contracts.exact_arithmetic import become_exact
from tensorhub_decoders.decoding import lane_dtype, on_device
from tensorhub_decoders.reading import TensorReader, stored_names, torch_dtype
from tensorhub_decoders.upcast.buffers import Arenas, padded, scratch
from tensorhub_decoders.upcast.cutting import strips

Yielded = TypeVar("Yielded")

#: Shape and dtype of a tensor for which memory is set aside.
_Output = tuple[tuple[int, ...], torch.dtype]


@attrs.frozen
class Strip:
    """Some rows of a stored weight, and the rows of the output that they become."""

    #: The rows as they are stored.
    stored: torch.Tensor
    #: Where they go.
    out: torch.Tensor
    #: Which matrix of a stack the rows are of: a stack comes matrix by matrix.
    matrix: int
    #: The first of the rows, counted from the first of the matrix.
    first_row: int


#: Converts one strip, given the other tensors of its unit by role.
Convert = Callable[[Strip, Mapping[str, torch.Tensor]], object]


@attrs.frozen
class UnitDecoding:
    """How units are converted."""

    #: The tensors of each unit by role, by the name of its weight.
    units: Mapping[str, Mapping[str, str]]
    #: Converts a strip of a weight.
    convert: Convert
    #: The dtype of decoded weights.
    out_dtype: torch.dtype
    #: What the conversion is called in reports.
    compute_path: str
    #: Whether a weight of three dimensions is a stack of matrices with sidecars of their own; else all dimensions after the first are one.
    stacked: bool = False


@attrs.frozen
class StoredTensor:
    """A tensor of a checkpoint as it is stored."""

    #: Its name.
    name: str
    #: Its values, in memory of its own.
    tensor: torch.Tensor
    #: The other tensors of its unit by role; empty for a tensor that is no unit's weight.
    sidecars: Mapping[str, torch.Tensor]


def read_tensors(inspection: Inspection, *, workers: int | None = None) -> Generator[StoredTensor]:
    """Yield every tensor of a checkpoint as it is stored, the weight of a unit with its sidecars; see `stream` for order and memory."""

    def output(reader: TensorReader, name: str) -> _Output:
        entry = reader.entry(name)
        return entry.shape, torch_dtype(entry.dtype)

    def fill(reader: TensorReader, name: str, out: torch.Tensor) -> StoredTensor:
        _read_whole(reader, name, out)
        return StoredTensor(name, out, _sidecars(reader, name, inspection.unit_tensors.get(name, {})))

    return _in_threads(inspection, output, fill, workers)


def stream(inspection: Inspection, decoding: UnitDecoding, *, workers: int | None = None) -> Generator[DecodedTensor]:
    """Yield every tensor of a checkpoint but the sidecars of units: units converted, the others as they are stored.

    Tensors come in the order in which they lie in the shards. Beside the tensors that the caller keeps, memory holds
    a few tensors that are on their way and one strip a thread. `workers` is by default the number of cores.
    """

    def output(reader: TensorReader, name: str) -> _Output:
        entry = reader.entry(name)
        return entry.shape, decoding.out_dtype if name in decoding.units else torch_dtype(entry.dtype)

    def fill(reader: TensorReader, name: str, out: torch.Tensor) -> DecodedTensor:
        roles = decoding.units.get(name)
        if roles is None:
            _read_whole(reader, name, out)
            return DecodedTensor(name, out, "")
        _decode(reader, name, decoding, _sidecars(reader, name, roles), out)
        return DecodedTensor(name, out, decoding.compute_path)

    return _in_threads(inspection, output, fill, workers)


def upcast_units(
    inspection: Inspection, convert: Convert, *, lane: str, dtype: str, device: str, stacked: bool = False
) -> Iterator[DecodedTensor]:
    """Yield every tensor of a checkpoint but the sidecars of units, on a device: units upcast strip by strip, the others as stored.

    `lane`, `dtype` and `device` are a decoder's. Raises `Refusal` at once for a dtype that the lane does not have
    (`lane-dtype`) and a device that is not there (`load-unsupported`).
    """
    decoding = UnitDecoding(inspection.unit_tensors, convert, lane_dtype(lane, dtype), "cpu.upcast", stacked)
    return on_device(stream(inspection, decoding), device)


def _in_threads(
    inspection: Inspection,
    output: Callable[[TensorReader, str], _Output],
    fill: Callable[[TensorReader, str, torch.Tensor], Yielded],
    workers: int | None,
) -> Generator[Yielded]:
    """Set memory aside for every tensor that is no sidecar, fill it in a thread, and yield what comes of it, in stored order."""
    names = [name for name in stored_names(inspection) if name not in inspection.sidecars]
    workers = workers or len(os.sched_getaffinity(0))
    threads_before = torch.get_num_threads()
    with TensorReader(inspection) as reader:
        outputs = {name: output(reader, name) for name in names}
        arenas = _arenas(outputs.values())
        executor = ThreadPoolExecutor(workers, initializer=_become_worker)
        try:
            waiting: deque[Future[Yielded]] = deque()
            for name in names:
                waiting.append(executor.submit(fill, reader, name, arenas[outputs[name][1]].tensor(*outputs[name])))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
            torch.set_num_threads(threads_before)  # torch keeps one number for all threads that are yet to start


def _become_worker() -> None:
    become_exact()  # a thread begins as the one that starts it
    torch.set_num_threads(1)


def _arenas(outputs: Iterable[_Output]) -> dict[torch.dtype, Arenas]:
    """Return arenas for each dtype: what is cast later leaves none of its bytes behind with others, and torch can save them."""
    sizes: dict[torch.dtype, int] = {}
    for shape, dtype in outputs:
        sizes[dtype] = sizes.get(dtype, 0) + padded(shape, dtype)
    return {dtype: Arenas(size) for dtype, size in sizes.items()}


def _read_whole(reader: TensorReader, name: str, out: torch.Tensor) -> None:
    if out.numel():
        reader.read_into(name, out.reshape(-1).view(torch.uint8).numpy().data)


def _sidecars(reader: TensorReader, name: str, roles: Mapping[str, str]) -> dict[str, torch.Tensor]:
    return {role: reader.read(tensor) for role, tensor in roles.items() if tensor != name}


def _decode(reader: TensorReader, name: str, decoding: UnitDecoding, sidecars: Mapping[str, torch.Tensor], out: torch.Tensor) -> None:
    """Fill the memory of one unit, strip by strip."""
    stored_dtype = torch_dtype(reader.entry(name).dtype)
    matrices = out if decoding.stacked and out.dim() == 3 else out.reshape(1, -1 if out.dim() < 2 else out.shape[0], _columns(out))
    count, rows, columns = matrices.shape
    width = columns * stored_dtype.itemsize
    for matrix in range(count if out.numel() else 0):
        for begin, end in strips(rows, columns):
            stored = scratch("stored", end - begin, columns, stored_dtype)
            reader.read_into(name, stored.view(torch.uint8).numpy().data.cast("B"), (matrix * rows + begin) * width)
            decoding.convert(Strip(stored, matrices[matrix, begin:end], matrix, begin), sidecars)


def _columns(out: torch.Tensor) -> int:
    """Return how many elements a row has: a vector is one row, and so is each element of the first dimension of the rest."""
    return out.numel() if out.dim() < 2 else out[0].numel() if out.numel() else 0

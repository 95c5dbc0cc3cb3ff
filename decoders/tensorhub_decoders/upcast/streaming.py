"""Decodes a checkpoint in strips of rows: each strip is read, converted while it is in cache, and written to its place.

One Python thread a core, each with one torch thread: a strip is too small to be shared, and threads that wait for
nobody hold up under a busy neighbour.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch

from tensorhub_contracts import DecodedTensor, Inspection
from tensorhub_decoders.reading import TensorReader, stored_names, torch_dtype
from tensorhub_decoders.upcast.buffers import Arenas, padded
from tensorhub_decoders.upcast.strips import strips


class Strip(NamedTuple):
    """Some rows of a stored weight, as they are stored, and the rows of the output that they become.

    A weight of more than two dimensions that is a stack comes matrix by matrix: `matrix` counts them.
    """

    stored: torch.Tensor
    out: torch.Tensor
    matrix: int
    first_row: int


#: Converts one strip, given the other tensors of its unit by role.
Convert = Callable[[Strip, Mapping[str, torch.Tensor]], object]


class UnitDecoding(NamedTuple):
    """How units are converted: the tensors of each by role, the function, the output's dtype, and what to call it.

    `stacked` says that a weight of three dimensions is a stack of matrices with sidecars of their own; otherwise all
    dimensions after the first are one.
    """

    units: Mapping[str, Mapping[str, str]]
    convert: Convert
    out_dtype: torch.dtype
    compute_path: str
    stacked: bool = False


class _Buffer(threading.local):
    """Memory of each thread for the stored bytes of one strip."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def of(self, size: int) -> memoryview:
        if len(self.bytes) < size:
            self.bytes = bytearray(size)
        return memoryview(self.bytes)[:size]


_buffer = _Buffer()


def stream(inspection: Inspection, decoding: UnitDecoding, *, workers: int | None = None) -> Generator[DecodedTensor]:
    """Yield every tensor of a checkpoint but the sidecars of units: units converted, the others as they are stored.

    Tensors come in the order in which they lie in the shards. Beside the tensors that the caller keeps, memory holds
    a few tensors that are on their way and one strip a thread. `workers` is by default the number of cores.
    """
    names = [name for name in stored_names(inspection) if name not in inspection.sidecars]
    workers = workers or len(os.sched_getaffinity(0))
    threads_before = torch.get_num_threads()
    with TensorReader(inspection) as reader:
        outputs = {name: _output(reader, name, decoding) for name in names}
        arenas = _arenas(outputs.values())
        executor = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            waiting: deque[Future[DecodedTensor]] = deque()
            for name in names:
                waiting.append(executor.submit(_decode, reader, name, decoding, arenas[outputs[name][1]].tensor(*outputs[name])))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
            torch.set_num_threads(threads_before)  # torch keeps one number for all threads that are yet to start


def _arenas(outputs: Iterable[tuple[tuple[int, ...], torch.dtype]]) -> dict[torch.dtype, Arenas]:
    """Return arenas for each dtype: what is cast later leaves none of its bytes behind with others, and torch can save them."""
    sizes: dict[torch.dtype, int] = {}
    for shape, dtype in outputs:
        sizes[dtype] = sizes.get(dtype, 0) + padded(shape, dtype)
    return {dtype: Arenas(size) for dtype, size in sizes.items()}


def _output(reader: TensorReader, name: str, decoding: UnitDecoding) -> tuple[tuple[int, ...], torch.dtype]:
    entry = reader.entry(name)
    return entry.shape, decoding.out_dtype if name in decoding.units else torch_dtype(entry.dtype)


def _decode(reader: TensorReader, name: str, decoding: UnitDecoding, out: torch.Tensor) -> DecodedTensor:
    """Fill the memory of one tensor."""
    roles = decoding.units.get(name)
    if roles is None:
        if out.numel():
            reader.read_into(name, out.reshape(-1).view(torch.uint8).numpy().data)
        return DecodedTensor(name, out, "")
    sidecars = {role: reader.read(tensor) for role, tensor in roles.items() if tensor != name}
    entry = reader.entry(name)
    stored_dtype = torch_dtype(entry.dtype)
    matrices = out if decoding.stacked and out.dim() == 3 else out.reshape(1, -1 if out.dim() < 2 else out.shape[0], _columns(out))
    count, rows, columns = matrices.shape
    width = columns * stored_dtype.itemsize
    for matrix in range(count if out.numel() else 0):
        for begin, end in strips(rows, columns):
            buffer = _buffer.of((end - begin) * width)
            reader.read_into(name, buffer, (matrix * rows + begin) * width)
            stored = torch.frombuffer(buffer, dtype=stored_dtype).view(end - begin, columns)
            decoding.convert(Strip(stored, matrices[matrix, begin:end], matrix, begin), sidecars)
    return DecodedTensor(name, out, decoding.compute_path)


def _columns(out: torch.Tensor) -> int:
    """Return how many elements a row has: a vector is one row, and so is each element of the first dimension of the rest."""
    return out.numel() if out.dim() < 2 else out[0].numel() if out.numel() else 0

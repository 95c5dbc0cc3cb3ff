"""Single device primitives against tables, bit for bit: conversions, matrix products of integers, a shuffle, copies with zero fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from tests.kernels.oracle.verdicts import same_bits
from tests.kernels.receipt.checks import NotRunError, Outcome, Receipt, require
from tests.kernels.receipt.machine import Machine, take

#: The source of the probes.
PROBES = Path(__file__).with_name("primitive_probes.cu")

#: Values of E4M3 that are small integers, and their codes: what is summed of them is exact whatever the order and precision of sums.
_INTEGERS = np.array([0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8], np.float32)
_INTEGER_CODES = np.array(
    [0x00, 0x38, 0xB8, 0x40, 0xC0, 0x44, 0xC4, 0x48, 0xC8, 0x4A, 0xCA, 0x4C, 0xCC, 0x4E, 0xCE, 0x50], np.uint8
)  # fmt: skip


@attrs.frozen
class Probe:
    """A kernel of the probes: its arguments are pointers to `inputs`, then to outputs, then `integers`. `outputs` are the expected ones."""

    name: str
    threads: int
    minimum_sm: int
    inputs: list[NDArray[Any]]
    outputs: list[NDArray[Any]]
    integers: list[int]
    shared_bytes: int = 0


#: Runs a probe over its inputs and integers, and returns outputs of the shapes and dtypes of the expected ones, each flat.
RunProbe = Callable[[Probe], list[NDArray[Any]]]


def source() -> str:
    """Return the probes' compile unit: the product's primitives and conversions, and the probes."""
    folder = files("tensorhub_cuda") / "kernels"
    paths = (folder / "primitives.cuh", folder / "e4m3.cuh", PROBES)
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def check_primitives(receipt: Receipt, machine: Machine, tables: Mapping[str, NDArray[Any]], run: RunProbe) -> None:
    """Run every probe and compare all bits."""
    for probe in probes(tables):
        required = machine.sm >= probe.minimum_sm
        receipt.check(f"primitive: {probe.name}", lambda probe=probe: _compare(machine, probe, run), required=required)


def _compare(machine: Machine, probe: Probe, run: RunProbe) -> Outcome:
    if machine.sm < probe.minimum_sm:
        raise NotRunError(f"sm_{machine.sm} has no such instruction: it came with sm_{probe.minimum_sm}")
    for index, (output, expected) in enumerate(zip(run(probe), probe.outputs, strict=True)):
        judgement = same_bits(output, expected.reshape(-1))
        require(judgement.passed, f"output {index}: {judgement.detail}")
    return f"{sum(output.size for output in probe.outputs)} elements, all bits equal"


def probes(tables: Mapping[str, NDArray[Any]]) -> list[Probe]:
    """Return all probes with what they must give; `tables` are the oracle's conversions."""
    finite = (tables["codes"] & 0x7F) != 0x7F
    bf16 = np.where(finite, tables["codes.bf16"], np.where(tables["codes"] == 0x7F, 0x43F0, 0xC3F0)).astype(np.uint16)
    values = tables["f32_to_e4m3.inputs"]
    whole = values.size // 4 * 4
    to_bf16 = tables["f32_to_bf16.inputs"]
    return [
        Probe("probe_e4m3", 256, 80, [tables["codes"]], [_nan_as_kernels_write_it(tables["codes.f32"]), bf16.view(np.uint32)], []),
        Probe("probe_f32_to_bf16", 256, 80, [to_bf16], [tables["f32_to_bf16.bits"]], [to_bf16.size]),
        Probe("probe_f32_to_e4m3", 256, 89, [values[:whole]], [tables["f32_to_e4m3.codes"][:whole].view(np.uint32)], [whole]),
        _matrix_product("probe_mma_bf16", 80, 16, lambda index: (_INTEGERS[index].view(np.uint32) >> 16).astype(np.uint16)),
        _matrix_product("probe_mma_e4m3", 89, 32, lambda index: _INTEGER_CODES[index]),
        *(_shuffle(mask) for mask in (1, 2, 4, 8, 16)),
        _async_copy(),
    ]


def _nan_as_kernels_write_it(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the table with the NaN that e4m3_to_f32 gives for both codes."""
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FFFFFFF
    return bits.view(np.float32)


def _matrix_product(name: str, minimum_sm: int, k: int, encode: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Probe:
    random = np.random.Generator(np.random.PCG64(k))
    a, b = random.integers(0, 16, (16, k)), random.integers(0, 16, (8, k))
    c = random.integers(-100, 100, (16, 8)).astype(np.float32)
    product = c + _INTEGERS[a] @ _INTEGERS[b].T
    return Probe(name, 32, minimum_sm, [encode(a).view(np.uint32), encode(b).view(np.uint32), c], [product.astype(np.float32)], [])


def _shuffle(mask: int) -> Probe:
    values = np.arange(32, dtype=np.float32) + 0.5
    return Probe("probe_shuffle", 32, 80, [values], [values[np.arange(32) ^ mask]], [mask])


def _async_copy() -> Probe:
    content = np.arange(1, 17 * 16 + 1, dtype=np.int64).astype(np.uint8).reshape(17, 16)
    kept = np.where(np.arange(16)[None, :] < np.arange(17)[:, None], content, 0).astype(np.uint8)
    return Probe("probe_async_copy", 32, 80, [content], [kept.view(np.uint32)], [], shared_bytes=17 * 16)


def run_on_driver(machine: Machine) -> RunProbe:
    """Return what runs probes with the CUDA driver: compiled with NVRTC for the device, and launched by cuda.core."""
    import torch
    from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
    from tensorhub_cuda.nvrtc.compile import compile_cubin

    @lru_cache(maxsize=1)
    def compiled() -> ObjectCode:
        Device(machine.device_index).set_current()
        return ObjectCode.from_cubin(compile_cubin(source(), machine.sm).code)

    def run(probe: Probe) -> list[NDArray[Any]]:
        given = [torch.from_numpy(np.ascontiguousarray(each).view(np.uint8)).to(machine.memory) for each in probe.inputs]
        made = [torch.full((each.nbytes,), 0xFF, dtype=torch.uint8, device=machine.memory) for each in probe.outputs]
        config = LaunchConfig(grid=1, block=probe.threads, shmem_size=probe.shared_bytes)
        pointers = [each.data_ptr() for each in (*given, *made)]
        integers = [np.int32(value) for value in probe.integers]
        launch(Stream.from_handle(machine.stream), config, compiled().get_kernel(probe.name), *pointers, *integers)
        machine.synchronize()
        return [take(tensor).view(each.dtype) for tensor, each in zip(made, probe.outputs, strict=True)]

    return run

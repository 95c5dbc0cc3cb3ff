"""Every kernel on every architecture, compiled by NVRTC: no spills, few enough registers, and the instructions that it is written for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest
from tensorhub_cuda.catalog import ARCHITECTURES, KERNELS, Kernel, kernel, read_source
from tensorhub_cuda.nvrtc.compile import KernelResources, compile_cubin, kernel_resources

from tests.kernels.support.sass import count, instructions

#: The tensor cores of these multiply FP8 themselves in mma.sync; on others it becomes a cast to F16 and a product of F16.
FP8_MMA = (89, 120, 121)

#: A source is compiled once an architecture, for all its kernels.
UNITS = list(dict.fromkeys(each.sources for each in KERNELS))
MATRIX = [
    pytest.param(sources, sm, id=f"{sources[-1].removesuffix('.cu')}-sm_{sm}")
    for sources in UNITS
    for sm in ARCHITECTURES
    if any(sm >= each.minimum_sm for each in KERNELS if each.sources == sources)
]


def wanted(of: Kernel, sm: int) -> tuple[set[str], set[str]]:
    """Return the instructions that a kernel must have and must not have on an architecture."""
    none_at_all = {"LDL", "STL"}  # local memory
    copies = {"LDGSTS"} if of.name.endswith("_tile") and of.compute != "w8a32" else set()
    match of.compute:
        case "w8a16":
            return {"HMMA"} | copies, {"QMMA"} | none_at_all
        case "w8a8" if sm in FP8_MMA:
            return {"QMMA"} | copies, {"HMMA"} | none_at_all
        case "w8a8":
            return {"HMMA", "F2FP"} | copies, {"QMMA"} | none_at_all
        case "w8a32":
            return {"FFMA"}, {"HMMA", "QMMA"} | none_at_all
        case _:
            return {"F2FP"}, {"HMMA", "QMMA"} | none_at_all


def faults(of: Kernel, sm: int, resources: KernelResources, found: Counter[str]) -> list[str]:
    """Return everything that is wrong with a compiled kernel."""
    wrong = [f"{name} is {value}" for name, value in attrs.asdict(resources).items() if name != "registers" and value]
    if resources.registers > of.max_registers:
        wrong.append(f"{resources.registers} registers, of {of.max_registers}")
    needed, forbidden = wanted(of, sm)
    wrong += [f"no {name}" for name in sorted(needed) if not count(found, name)]
    wrong += [f"{count(found, name)} {name}" for name in sorted(forbidden) if count(found, name)]
    return wrong


@pytest.mark.parametrize(("sources", "sm"), MATRIX)
def test_a_unit_compiles_as_it_is_meant_to(sources: tuple[str, ...], sm: int, tmp_path: Path) -> None:
    kernels = [each for each in KERNELS if each.sources == sources and sm >= each.minimum_sm]
    cubin = compile_cubin(read_source(kernels[0]), sm)
    resources, found = kernel_resources(cubin.log), instructions(cubin.code, tmp_path)
    for each in kernels:
        print(f"{each.name:<28} {cubin.architecture:<8} {resources[each.name].registers:>3} registers  {len(cubin.code):>6} bytes")
    assert {each.name: faults(each, sm, resources[each.name], found[each.name]) for each in kernels} == {each.name: [] for each in kernels}


def test_every_kernel_is_in_the_matrix_from_its_own_floor_on() -> None:
    tried = {(sources, sm) for sources, sm in (each.values for each in MATRIX)}
    assert {(each.sources, sm) for each in KERNELS for sm in ARCHITECTURES if sm >= each.minimum_sm} == tried
    assert {each.minimum_sm for each in KERNELS} <= set(ARCHITECTURES)


# The checks above see what they are there for.

SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
  float part[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) part[i] = x[threadIdx.x + i * 1024];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; ++i) y[threadIdx.x + i * 1024] = part[i] * part[(i * 7 + 1) % 96];
}
"""

LOCAL = """
extern "C" __global__ void local_memory(const int* x, float* y) {
  float part[64];
  for (int i = 0; i < 64; ++i) part[x[i] & 63] = i;
  y[threadIdx.x] = part[x[threadIdx.x] & 63];
}
"""


def control(source: str, name: str, like: str, folder: Path, sm: int = 90) -> list[str]:
    """Return the faults of a source of ours, judged as if it were a kernel of the catalogue."""
    cubin = compile_cubin(source, sm)
    return faults(kernel(like), sm, kernel_resources(cubin.log)[name], instructions(cubin.code, folder)[name])


def test_a_kernel_that_spills_is_seen(tmp_path: Path) -> None:
    found = control(SPILLING, "spilling", "block_fp8_w8a32_tile", tmp_path)
    assert {"stack_bytes", "spill_store_bytes", "spill_load_bytes"} <= {each.split()[0] for each in found}
    assert any(each.endswith(" STL") for each in found)
    assert any(each.endswith(" LDL") for each in found)


def test_local_memory_without_a_spill_is_seen(tmp_path: Path) -> None:
    found = control(LOCAL, "local_memory", "block_fp8_w8a32_tile", tmp_path)
    assert any(each.startswith("stack_bytes") for each in found)
    assert any(each.endswith(" LDL") for each in found)


def test_a_missing_and_a_forbidden_instruction_are_seen(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void plain(const float* x, float* y) { y[0] = fmaf(x[0], x[1], x[2]); }'
    assert control(source, "plain", "block_fp8_w8a32_tile", tmp_path) == []
    assert control(source, "plain", "block_fp8_w8a16_tile", tmp_path) == ["no HMMA", "no LDGSTS"]
    assert control(source, "plain", "block_fp8_w8a8_tile", tmp_path) == ["no F2FP", "no HMMA", "no LDGSTS"]
    small = read_source(kernel("block_fp8_w8a16_small_m8"))
    found = control(small, "block_fp8_w8a16_small_m8", "block_fp8_w8a32_tile", tmp_path)
    assert [each for each in found if each.endswith(" HMMA")]


def test_too_many_registers_are_seen() -> None:
    of, found = kernel("block_fp8_w8a16_small_m8"), Counter({"HMMA.16816.F32.BF16": 8})
    assert faults(of, 90, KernelResources(of.max_registers, 0, 0, 0), found) == []
    greedy = KernelResources(of.max_registers + 1, 0, 0, 0)
    assert faults(of, 90, greedy, found) == [f"{of.max_registers + 1} registers, of {of.max_registers}"]


def test_the_log_of_one_kernel_is_not_read_as_that_of_another() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
ptxas info    : Compiling entry function 'unfinished' for 'sm_90a'
"""
    assert kernel_resources(log) == {"first": KernelResources(255, 16, 12, 8), "second": KernelResources(40, 0, 0, 0)}

"""The emulator reports what a kernel must not do: one small kernel a fault, and beside it the same without."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests.kernels.emulator import emulator as emulator_module
from tests.kernels.emulator.emulator import SCHEDULES, Emulator, EmulatorError, Options
from tests.kernels.emulator.small_kernels import build_small, run_small
from tests.kernels.support.linear_cases import aligned_array

SOURCE = r"""
KERNEL(64) exchange(const float* x, float* y, int barrier) {
  DYNAMIC_SHARED(shared);
  float* values = (float*)shared;
  shared_store_f32(values + threadIdx.x, load_f32(x + threadIdx.x));
  if (barrier) __syncthreads();
  store_f32(y + threadIdx.x, shared_load_f32(values + (threadIdx.x ^ 33)));
}

KERNEL(64) overwrite(const float* x, float* y, int barrier) {
  DYNAMIC_SHARED(shared);
  float* values = (float*)shared;
  shared_store_f32(values + threadIdx.x, load_f32(x + threadIdx.x));
  __syncthreads();
  float neighbour = shared_load_f32(values + (threadIdx.x ^ 33));
  if (barrier) __syncthreads();
  shared_store_f32(values + threadIdx.x, neighbour);
  store_f32(y + threadIdx.x, shared_load_f32(values + threadIdx.x));
}

KERNEL(64) shared_index(float* y, int write, int read) {
  DYNAMIC_SHARED(shared);
  float* values = (float*)shared;
  if (threadIdx.x == 0) shared_store_f32(values + write, 1.f);
  __syncthreads();
  store_f32(y + threadIdx.x, shared_load_f32(values + read));
}

KERNEL(64) shared_vector(float* y, int offset) {
  DYNAMIC_SHARED(shared);
  float* values = (float*)shared;
  shared_store_f32(values + threadIdx.x, 1.f);
  __syncthreads();
  store_f32(y + threadIdx.x, shared_load_f32x4(values + offset).x);
}

KERNEL(64) some_at_barrier(float* y, int threads) {
  if (threadIdx.x < threads) __syncthreads();
  store_f32(y + threadIdx.x, 1.f);
}

KERNEL(64) two_barriers(float* y, int threads) {
  if (threadIdx.x < threads) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  store_f32(y + threadIdx.x, 1.f);
}

KERNEL(64) some_in_shuffle(float* y, int lanes) {
  float value = 1.f;
  if ((threadIdx.x & 31) < lanes) value = shuffle_xor_f32(value, 1);
  store_f32(y + threadIdx.x, value);
}

KERNEL(64) some_in_mma(float* y, int lanes) {
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
  if ((threadIdx.x & 31) < lanes) mma_bf16_m16n8k16(sum, 0, 0, 0, 0, 0, 0);
  store_f32(y + threadIdx.x, sum[0]);
}

KERNEL(64) read_at(const float* x, float* y, i64 index) {
  store_f32(y + threadIdx.x, load_f32(x + index));
}

KERNEL(64) read_16_at(const u8* x, float* y, i64 index) {
  store_f32(y + threadIdx.x, __uint_as_float(load_16_bytes(x + index).x));
}

KERNEL(64) write_at(float* x, float* y, i64 index, int threads) {
  if (threadIdx.x < threads) store_f32(x + index, 1.f);
  store_f32(y + threadIdx.x, 1.f);
}

KERNEL(64) write_to_constant(const float* x, float* y) {
  store_f32((float*)x + threadIdx.x, 1.f);
}

KERNEL(64) copy_of_groups(const float* x, float* y, int commit, int wait_for_all, int barrier) {
  DYNAMIC_SHARED(shared);
  float* values = (float*)shared;
  copy_16_bytes_async(shared + threadIdx.x * 16, x + threadIdx.x * 4, 16);
  if (commit) copy_commit();
  if (wait_for_all) copy_wait<0>(); else copy_wait<1>();
  if (barrier) __syncthreads();
  store_f32(y + threadIdx.x, shared_load_f32(values + ((threadIdx.x * 4) ^ (barrier ? 132 : 0))));
}

KERNEL(64) partial_copy(const float* x, float* y, int bytes) {
  DYNAMIC_SHARED(shared);
  copy_16_bytes_async(shared + threadIdx.x * 16, bytes ? x + threadIdx.x * 4 : x, bytes);
  copy_commit();
  copy_wait<0>();
  store_f32(y + threadIdx.x, shared_load_f32((float*)shared + threadIdx.x * 4 + 3));
}
"""


@functools.cache
def faults() -> Emulator:
    return build_small(SOURCE)


def outputs() -> Any:
    return aligned_array((64,), np.float32)


def inputs(count: int = 64) -> Any:
    x = aligned_array((count,), np.float32)
    x[:] = np.arange(count)
    return x


def run(name: str, *args: Any, **settings: Any) -> None:
    run_small(faults(), name, args, threads=settings.pop("threads", 64), shared_bytes=settings.pop("shared_bytes", 1024), **settings)


def refused(message: str, name: str, *args: Any, **settings: Any) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(name, *args, **settings)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_missing_barrier_is_a_race_under_every_schedule(schedule: Any) -> None:
    options = Options(schedule=schedule)
    y = outputs()
    run("exchange", inputs(), y, 1, options=options)
    assert np.array_equal(y, np.arange(64) ^ 33)
    refused("that (another thread|nothing) wrote", "exchange", inputs(), outputs(), 0, options=options)
    run("overwrite", inputs(), outputs(), 1, options=options)
    refused("race: shared memory (written|read) that another thread", "overwrite", inputs(), outputs(), 0, options=options)


def test_shared_memory_has_bounds_and_is_not_read_before_it_is_written() -> None:
    run("shared_index", outputs(), 5, 5)
    refused("that nothing wrote", "shared_index", outputs(), 5, 6)
    refused("shared access out of bounds", "shared_index", outputs(), 256, 5)
    refused("shared access out of bounds", "shared_index", outputs(), 5, -1)
    run("shared_index", outputs(), 255, 255)
    run("shared_index", outputs(), 5, 5, shared_bytes=24)
    refused("shared access out of bounds", "shared_index", outputs(), 6, 5, shared_bytes=24)
    run("shared_vector", outputs(), 4)
    refused("misaligned shared access", "shared_vector", outputs(), 3)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["some_at_barrier", "two_barriers", "some_in_shuffle", "some_in_mma"])
def test_threads_that_part_are_reported(name: str, schedule: Any) -> None:
    options = Options(schedule=schedule)
    whole = 32 if name in ("some_in_shuffle", "some_in_mma") else 64
    run(name, outputs(), whole, options=options)
    for some in (1, 31):
        refused("threads wait for each other", name, outputs(), some, options=options)


def test_a_load_stays_within_its_array() -> None:
    x = inputs()
    run("read_at", x, outputs(), 63)
    for index in (64, -1, 2**31, 2**40):
        refused("global load out of bounds", "read_at", x, outputs(), index)
    refused("global load out of bounds", "read_at", None, outputs(), 0)


def test_the_space_between_rows_is_out_of_bounds() -> None:
    x = aligned_array((3, 8), np.float32, padding=4)
    x[:] = 1
    for index in (0, 7, 12, 24, 31):
        run("read_at", x, outputs(), index)
    for index in (8, 11, 20, 32, 35):
        refused("global load out of bounds", "read_at", x, outputs(), index)


def test_a_vector_is_aligned_and_wholly_within() -> None:
    x = aligned_array((40,), np.uint8)
    x[:] = 0
    run("read_16_at", x, outputs(), 16)
    refused("misaligned global access", "read_16_at", x, outputs(), 8)
    refused("global load out of bounds", "read_16_at", x, outputs(), 32)


def test_stores_are_checked() -> None:
    run("write_at", inputs(), outputs(), 3, 1)
    refused("global store out of bounds", "write_at", inputs(), outputs(), 64, 1)
    refused("stored before", "write_at", inputs(), outputs(), 3, 2)
    refused("array that is only read", "write_to_constant", inputs(), outputs())


@pytest.mark.parametrize("lazy", [False, True])
def test_a_copy_is_waited_for_and_then_shared_by_a_barrier(lazy: bool) -> None:
    options = Options(lazy_copies=lazy)
    x, y = inputs(256), outputs()
    run("copy_of_groups", x, y, 1, 1, 1, options=options)
    assert np.array_equal(y, (np.arange(64) * 4) ^ 132)
    run("copy_of_groups", x, y, 1, 1, 0, options=options)  # each thread reads its own
    assert np.array_equal(y, np.arange(64) * 4)
    refused("before its copy was waited for", "copy_of_groups", x, outputs(), 1, 0, 1, options=options)
    refused("before its copy was waited for", "copy_of_groups", x, outputs(), 0, 1, 1, options=options)
    run("partial_copy", x, y, 16, options=options)
    assert np.array_equal(y, np.arange(64) * 4 + 3)
    run("partial_copy", x, y, 0, options=options)
    assert not y.any()


def test_a_launch_that_a_device_refuses_is_refused() -> None:
    refused("grid or number of threads", "read_at", inputs(), outputs(), 0, threads=96)
    refused("grid or number of threads", "read_at", inputs(), outputs(), 0, threads=48)
    refused("grid or number of threads", "read_at", inputs(), outputs(), 0, blocks=0)
    with pytest.raises(EmulatorError, match="has 3 parameters"):
        run("read_at", inputs(), outputs())
    with pytest.raises(KeyError):
        run("no_such_kernel")


def test_it_works_after_an_error() -> None:
    refused("global load out of bounds", "read_at", inputs(), outputs(), 64)
    y = outputs()
    run("read_at", inputs(), y, 5)
    assert (y == 5).all()


def test_addresses_alone_run_without_bounds() -> None:
    x, y = inputs(), outputs()
    emulator = faults()
    assert emulator.parameter_kinds("read_at") == "rwl"
    small = emulator_module.Kernel("read_at", "quantize", (), 64, 1, 1, 0, 75, 255, False)
    emulator.library.emulator_set_ranges(0, None, None, None)
    emulator.check_bounds(False)
    try:
        emulator.launch_addresses(small, (1, 1), [x.ctypes.data, y.ctypes.data, 7])
    finally:
        emulator.check_bounds(True)
    assert (y == 7).all()
    with pytest.raises(EmulatorError, match="out of bounds"):
        emulator.launch_addresses(small, (1, 1), [x.ctypes.data, y.ctypes.data, 7])


def test_a_machine_without_a_compiler_fails_and_does_not_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(emulator_module.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"Install g\+\+"):
        emulator_module.build(tmp_path, {})


def test_a_source_that_does_not_compile_is_shown(tmp_path: Any) -> None:
    with pytest.raises(RuntimeError, match=r"broken\.cu:2.*no_such_type"):
        emulator_module.build(tmp_path, {"broken.cu": "\nno_such_type x;"})

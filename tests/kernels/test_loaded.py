"""Loading a kernel onto a device: once, with its provenance, and with the one who decided where it does not load.

The driver's part is stood in for by a few functions here; the mock driver runs the same code behind cuda.core.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest
from cuda.bindings import driver
from tensorhub_cuda.catalog import Kernel, require_supported
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch import loaded as loaded_kernels
from tensorhub_cuda.launch.loaded import loaded_kernel, prepare_kernels
from tensorhub_cuda.nvrtc import cache as kernel_cache
from tensorhub_cuda.nvrtc.cache import digest_of
from tensorhub_cuda.nvrtc.compile import Cubin

SMALL = 'extern "C" __global__ void small(float* x) { x[0] = 1; }'
KERNEL = Kernel("small", "w8a32", ("small.cu",), 128, 1, 1, 65536, 80, 32, False)


class Stand:
    """What the stand-in saw, and what it answers."""

    def __init__(self) -> None:
        self.loaded: list[tuple[bytes, str]] = []
        self.limits: list[tuple[int, int]] = []
        self.capabilities = {0: (9, 0), 1: (7, 5)}
        self.load_error: Exception | None = None
        self.limit_status = 0

    def device(self, index: int) -> Any:
        if index not in self.capabilities:
            raise RuntimeError("CUDA_ERROR_INVALID_DEVICE")
        return SimpleNamespace(compute_capability=self.capabilities[index])

    def from_cubin(self, code: bytes, *, name: str) -> Any:
        if self.load_error:
            raise self.load_error
        self.loaded.append((code, name))
        return SimpleNamespace(get_kernel=lambda symbol: SimpleNamespace(handle=symbol))

    def set_attribute(self, attribute: object, value: int, kernel: str, device: int) -> tuple[int]:
        assert attribute == driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.limits.append((device, value))
        return (self.limit_status,)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stand]:
    stand = Stand()
    core = ModuleType("cuda.core")
    core.__dict__.update(Device=stand.device, ObjectCode=SimpleNamespace(from_cubin=stand.from_cubin))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(driver, "cuDeviceGet", lambda index: (0, index))
    monkeypatch.setattr(driver, "cuKernelSetAttribute", stand.set_attribute)
    monkeypatch.setattr(driver, "cuKernelGetFunction", lambda handle: (driver.CUresult.CUDA_SUCCESS, handle))
    monkeypatch.setattr(driver, "cuFuncLoad", lambda function: (driver.CUresult.CUDA_SUCCESS,))
    monkeypatch.setenv("TENSOR_CONTRACTS_KERNEL_CACHE", str(tmp_path))
    monkeypatch.delenv("TENSOR_CONTRACTS_DISABLE_JIT", raising=False)
    monkeypatch.setattr(loaded_kernels, "read_source", lambda kernel: SMALL)
    monkeypatch.setattr(loaded_kernels, "LOADED_KERNELS", {})
    return stand


def test_a_kernel_is_loaded_once_and_says_where_it_is_from(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_kernel(KERNEL, 0)
    assert loaded_kernel(KERNEL, 0) is loaded
    ((code, name),) = stand.loaded
    assert (name, loaded.digest, loaded.sm, loaded.origin) == ("small", digest_of(code), 90, "compiled")
    assert Path(loaded.path).exists()
    assert stand.limits == [(0, 65536)]
    monkeypatch.setattr(loaded_kernels, "LOADED_KERNELS", {})  # another process
    again = loaded_kernel(KERNEL, 0)
    assert (again.origin, again.path, again.digest) == ("cache", loaded.path, loaded.digest)


def test_each_device_has_its_own(stand: Stand) -> None:
    stand.capabilities[1] = (8, 0)
    first, second = loaded_kernel(KERNEL, 0), loaded_kernel(KERNEL, 1)
    assert (first.sm, second.sm) == (90, 80)
    assert first.digest != second.digest
    assert stand.limits == [(0, 65536), (1, 65536)]


def test_a_kernel_without_dynamic_memory_sets_no_limit(stand: Stand) -> None:
    loaded_kernel(attrs.evolve(KERNEL, shared_bytes=0), 0)
    assert stand.limits == []


def test_threads_that_ask_at_once_compile_once(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = kernel_cache.compile_cubin

    def counted(source: str, sm: int) -> Cubin:
        calls.append(sm)
        return real(source, sm)

    monkeypatch.setattr(kernel_cache, "compile_cubin", counted)
    start, found = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        found.append(loaded_kernel(KERNEL, 0))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, len(stand.loaded), len(found), len({id(each) for each in found})) == ([90], 1, 8, 1)


def refused(index: int = 0) -> KernelUnavailable:
    """Return the refusal of a kernel; asking again refuses again, so nothing half loaded was kept."""
    with pytest.raises(KernelUnavailable):
        loaded_kernel(KERNEL, index)
    with pytest.raises(KernelUnavailable) as caught:
        loaded_kernel(KERNEL, index)
    return caught.value


def test_the_compute_capability_is_judged_before_anything_is_compiled(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_kernels, "find_cubin", lambda *_: pytest.fail("looked for a cubin"))
    unavailable = refused(1)
    assert (unavailable.decided_by, unavailable.object, unavailable.found) == ("floor", "small", "sm_75")
    assert "sm_80" in unavailable.expected
    require_supported(KERNEL, 80)


def test_kernels_are_prepared_together_or_not_at_all(stand: Stand) -> None:
    """On a device that has the kernels of one compute and not of the other, none is compiled."""
    stand.capabilities[0] = (8, 6)
    with pytest.raises(KernelUnavailable) as caught:
        prepare_kernels(0, ["w8a32", "w8a8"])
    assert (caught.value.decided_by, caught.value.object) == ("floor", "quantize_activations")
    assert stand.loaded == []
    assert [each.kernel.name for each in prepare_kernels(0, ["w8a32"])] == ["block_fp8_w8a32_tile"]
    with pytest.raises(ValueError, match="compute: one of w8a16"):
        prepare_kernels(0, ["w4a16"])


def test_code_that_the_device_does_not_take_is_not_kept(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuFuncLoad", lambda function: (driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY,))
    unavailable = refused()
    assert unavailable.decided_by == "driver"
    assert "OUT_OF_MEMORY" in unavailable.found
    assert len(stand.loaded) == 2, "each call tried again"


def test_a_device_that_is_not_there(stand: Stand) -> None:
    unavailable = refused(7)
    assert unavailable.decided_by == "driver"
    assert "CUDA_ERROR_INVALID_DEVICE" in unavailable.found
    assert "tensorhub doctor" in unavailable.remedy


def test_a_cubin_that_the_driver_does_not_load(stand: Stand) -> None:
    stand.load_error = RuntimeError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
    unavailable = refused()
    assert unavailable.decided_by == "driver"
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in unavailable.found
    assert "sm_90a" in unavailable.expected
    assert "NVRTC" in unavailable.expected
    stand.load_error = None
    assert loaded_kernel(KERNEL, 0).handle


def test_shared_memory_that_the_device_does_not_have(stand: Stand) -> None:
    stand.limit_status = 1
    unavailable = refused()
    assert unavailable.decided_by == "driver"
    assert "65536 bytes of shared memory" in unavailable.expected


def test_compiling_that_is_forbidden(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_CONTRACTS_DISABLE_JIT", "1")
    assert refused().decided_by == "disabled"
    assert stand.loaded == []


def test_without_cuda_core(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    unavailable = refused()
    assert (unavailable.decided_by, unavailable.object) == ("package", "cuda-core")


def test_without_a_driver() -> None:
    """The real packages, on a machine that has no driver."""
    from tensorhub_cuda.environment.look import find_environment

    if find_environment().driver.cuda:
        pytest.skip("this machine has a driver")
    with pytest.raises(KernelUnavailable) as caught:
        loaded_kernel(KERNEL, 0)
    assert caught.value.decided_by == "driver"

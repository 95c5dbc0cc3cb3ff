"""Scenarios: the caller's stream, device and thread, and the capture of a CUDA graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tensorhub_cuda.errors import KernelArgumentError
from tensorhub_cuda.launch import torch_op
from tensorhub_cuda.launch.loaded import prepare_kernels
from tensorhub_cuda.launch.torch_op import block_fp8_linear_cuda, linear_on_stream

from tests.kernels.mock_driver import reference_execution
from tests.kernels.mock_driver.driver import MockDriver
from tests.kernels.mock_driver.operands import operands
from tests.kernels.mock_driver.scenario import assert_close, project, scenario, unavailable


@scenario
def streams_are_the_callers(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    case = operands(3, 40, 32, "w8a16", "block")
    streams = [0, driver.create_stream(0), driver.create_stream(0)]
    for stream in (*streams, *streams):
        project(driver, case, stream=stream)
        assert driver.launches[-1].stream == stream
    case = operands(3, 40, 32, "w8a8", "block")
    project(driver, case, stream=streams[1])
    assert {launch.stream for launch in driver.launches[-2:]} == {streams[1]}, "both kernels, in order"


@scenario
def a_second_device_has_its_own_kernels(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    case = operands(3, 40, 32, "w8a16", "block")
    stream = driver.create_stream(1)
    for device, its_stream in ((0, 0), (1, stream), (0, 0), (1, stream)):
        assert_close(project(driver, case, device=device, stream=its_stream), case)
        assert (driver.launches[-1].device, driver.launches[-1].stream) == (device, its_stream)
    with unavailable("floor", "block_fp8_w8a8_tile"):
        project(driver, operands(3, 40, 32, "w8a8", "block"), device=1)
    with unavailable("floor"):
        prepare_kernels(1, ["w8a8"])
    count = len(driver.launches)
    with unavailable("driver"):  # the control: another device is current than the stream's
        project(driver, case, device=0, stream=stream)
    assert len(driver.launches) == count


@scenario
def the_tensors_device_and_current_stream_are_used(driver: MockDriver) -> None:
    """`block_fp8_linear_cuda`, with torch's guard and streams played by the mock driver."""
    driver.execute = reference_execution.execute
    streams = {0: driver.create_stream(0), 1: driver.create_stream(1)}
    driver.make_current(0)

    @contextmanager
    def guard(device: int) -> Iterator[None]:
        before = driver.current_device()
        driver.make_current(device)
        yield
        driver.make_current(before)

    class Stream:
        def __init__(self, device: int) -> None:
            self.cuda_stream = streams[device]

    kept = (torch.cuda.device, torch.cuda.current_stream, torch_op._cuda_index)
    case = operands(3, 40, 32, "w8a16", "block", biased=True)
    try:
        torch.cuda.device, torch.cuda.current_stream = guard, Stream  # type: ignore[assignment,misc]  # parts for the test
        for device in (1, 0):
            torch_op._cuda_index = lambda _device, device=device: device  # type: ignore[misc]  # as above
            assert_close(block_fp8_linear_cuda(*case.call), case)
            assert (driver.launches[-1].device, driver.launches[-1].stream) == (device, streams[device])
            assert driver.current_device() == 0, "the current device is as it was"
    finally:
        torch.cuda.device, torch.cuda.current_stream, torch_op._cuda_index = kept  # type: ignore[misc]  # as above
    with pytest.raises(KernelArgumentError) as caught:
        block_fp8_linear_cuda(*case.call)
    assert "a CUDA device, not cpu" in str(caught.value)


@scenario
def a_thread_without_a_context_can_launch(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    prepare_kernels(0, ["w8a16"])
    case = operands(3, 40, 32, "w8a16", "block")
    results: list[Any] = []

    def work() -> None:
        results.append(driver.current_device())
        results.append(linear_on_stream(*case.call, device_index=0, stream=0))
        results.append(driver.current_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results[0] == -1
    assert_close(results[1], case)
    assert results[2] == 0


@scenario
def a_capture_needs_prepared_kernels(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    case, stream = operands(3, 40, 32, "w8a8", "block"), driver.create_stream(0)
    driver.set_capturing(stream, True)
    with unavailable("driver", "quantize_activations") as caught:
        project(driver, case, stream=stream)
    assert "prepare" in caught.value.remedy
    assert driver.calls("cuLibraryLoadData") == driver.calls("cuLaunchKernelEx") == 0
    driver.inject("cuStreamIsCapturing", 906)  # beside another stream's capture, the driver says so of the default stream
    with unavailable("driver"):
        project(driver, case, stream=0)
    driver.set_capturing(stream, False)

    loaded = prepare_kernels(0, ["w8a8", "w8a16", "w8a32"])
    assert [each.kernel.name for each in loaded] == [
        "quantize_activations",
        "block_fp8_w8a8_tile",
        "block_fp8_w8a16_small_m8",
        "block_fp8_w8a16_small_m16",
        "block_fp8_w8a16_tile",
        "block_fp8_w8a32_tile",
    ]
    before = (driver.calls("cuLibraryLoadData"), driver.calls("cuKernelSetAttribute"))
    driver.set_capturing(stream, True)
    for compute in ("w8a8", "w8a16", "w8a32"):
        for m in (1, 12, 40):
            case = operands(m, 40, 32, compute, "block")
            assert_close(project(driver, case, stream=stream), case)
    assert (driver.calls("cuLibraryLoadData"), driver.calls("cuKernelSetAttribute")) == before
    driver.set_capturing(stream, False)

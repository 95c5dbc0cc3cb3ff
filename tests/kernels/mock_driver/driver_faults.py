"""Scenarios: errors of the driver, and the controls: what is launched wrongly is refused or seen."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch import driver as kernel_launch
from tensorhub_cuda.launch import loaded as loaded_kernels
from tensorhub_cuda.launch.loaded import prepare_kernels
from tensorhub_cuda.launch.torch_op import linear_on_stream

from tests.kernels.mock_driver import reference_execution
from tests.kernels.mock_driver.driver import Launch, MockDriver
from tests.kernels.mock_driver.launch_checks import MATRIX, problems
from tests.kernels.mock_driver.operands import operands
from tests.kernels.mock_driver.scenario import TOLERANCES, assert_close, difference, project, scenario, unavailable


@scenario
def errors_of_the_driver_are_typed(driver: MockDriver) -> None:
    case = operands(3, 40, 32, "w8a16", "block")
    for function, result, name in (
        ("cuLibraryLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuLibraryGetKernel", 500, "CUDA_ERROR_NOT_FOUND"),
        ("cuKernelSetAttribute", 1, "CUDA_ERROR_INVALID_VALUE"),
        ("cuLaunchKernelEx", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    ):
        driver.inject(function, result)
        with unavailable("driver", "block_fp8_w8a16_small_m8") as caught:
            project(driver, case)
        assert name in str(caught.value), caught.value
    driver.execute = reference_execution.execute
    assert_close(project(driver, case), case)  # the next call is served


@scenario
def errors_of_earlier_work_stay_what_they_are(driver: MockDriver) -> None:
    """An illegal address of another kernel, reported at our launch: not a kernel that is unavailable here."""
    case = operands(3, 40, 32, "w8a16", "block")
    driver.inject("cuLaunchKernelEx", 700)
    with pytest.raises(Exception, match="CUDA_ERROR_") as caught:  # cuda.core\'s CUDAError is not public
        project(driver, case)
    assert not isinstance(caught.value, KernelUnavailable)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(caught.value)
    assert "block_fp8_w8a16_small_m8" in caught.value.__notes__[0]


@scenario
def a_device_that_is_not_there(driver: MockDriver) -> None:
    case = operands(3, 40, 32, "w8a16", "block")
    driver.make_current(0)
    with unavailable("driver", "CUDA device 3"):
        linear_on_stream(*case.call, device_index=3, stream=0)


@scenario
def more_shared_memory_than_was_allowed_is_refused(driver: MockDriver) -> None:
    """The tile needs more than 48 KiB: without the attribute the driver refuses it, as the real one does."""
    loaded = prepare_kernels(0, ["w8a16"])[-1]
    assert loaded.kernel.shared_bytes > 48 * 1024
    core = kernel_launch._core()
    cubin = loaded_kernels.find_cubin(loaded_kernels.read_source(loaded.kernel), 90)
    bare = core.ObjectCode.from_cubin(cubin.code).get_kernel(loaded.kernel.name)
    arguments = (1 << 20, 1 << 20, 0, 1 << 20, 0, 0, 1 << 20, 16, 16, *np.array([64, 128, 16, 1, 7, 1], np.int32))
    driver.make_current(0)
    for handle, accepted in ((loaded.handle, True), (bare, False)):
        configuration = kernel_launch._configuration(1, 1, 128, loaded.kernel.shared_bytes)
        driver.launches.clear()
        if accepted:
            core.launch(kernel_launch._stream(0, 0), configuration, handle, *arguments)
            assert driver.launches[0].shared_limit == loaded.kernel.shared_bytes
            assert not problems(driver.launches[0])
        else:
            with pytest.raises(Exception, match="CUDA_ERROR_") as caught:  # cuda.core\'s CUDAError is not public
                core.launch(kernel_launch._stream(0, 0), configuration, handle, *arguments)
            assert "CUDA_ERROR_INVALID_VALUE" in str(caught.value)
            assert not driver.launches


#: A right launch of the kernel for 8 rows, by the names of its parameters.
_RIGHT = {
    **dict.fromkeys(("weight", "scale", "x", "y"), 16),
    **dict.fromkeys(("scale_rows", "x_scale", "bias"), 0),
    "weight_stride": 300,
    "x_stride": 300,
    "m": 5,
    "n": 40,
    "k": 300,
    "scale_stride": 3,
    "scale_row_shift": 7,
    "scale_column_step": 1,
}


@scenario
def wrong_launches_are_seen(driver: MockDriver) -> None:
    """Each way to launch wrongly has a problem by name; the right launch has none."""
    loaded = prepare_kernels(0, ["w8a16"])[0]
    driver.make_current(0)

    def launched(grid: tuple[int, int] = (3, 1), threads: int = 128, shared_bytes: int = 2048, **changed: int) -> list[str]:
        arguments = [value if MATRIX[name] == 8 else np.int32(value) for name, value in in_order({**_RIGHT, **changed}).items()]
        configuration = kernel_launch._configuration(*grid, threads, shared_bytes)
        kernel_launch._core().launch(kernel_launch._stream(0, 0), configuration, loaded.handle, *arguments)
        return problems(driver.launches[-1])

    assert launched() == []
    for grid in ((1, 3), (4, 1), (3, 2)):
        assert launched(grid=grid), grid
    assert launched(threads=256)
    assert launched(shared_bytes=0)
    for changed in (
        *({name: 0} for name in ("weight", "scale", "x", "y", "m", "scale_row_shift", "scale_column_step")),
        *({"m": 9}, {"scale": 18}, {"x": 17}, {"y": 17}, {"x_scale": 16}, {"scale_stride": 2}, {"k": 429}),
    ):
        assert launched(**changed), changed


@scenario
def wrong_arguments_give_wrong_results(driver: MockDriver) -> None:
    """The control of every comparison with float64: a projection whose launch is bent is not close."""
    for bent, change in (("x_stride", 1), ("weight_stride", 1), ("scale_row_shift", 1), ("bias", 2), ("scale", 4), ("x", 2)):
        case = operands(9, 300, 272, "w8a16", "block", biased=True, layout="padded")

        def execute(launch: Launch, bent: str = bent, change: int = change) -> None:
            arguments = dict(zip(MATRIX, launch.arguments, strict=True))
            arguments[bent] += change
            reference_execution.execute(attrs.evolve(launch, arguments=tuple(arguments.values())), judge=False)

        driver.execute = execute
        y = project(driver, case)
        assert not driver.errors, driver.errors
        assert not difference(y, case) <= TOLERANCES["w8a16"], bent


def in_order(arguments: dict[str, int]) -> dict[str, int]:
    """Return arguments in the order of the parameters."""
    return {name: arguments[name] for name in MATRIX}

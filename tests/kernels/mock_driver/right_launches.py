"""Scenarios: launches of every kernel, layout and size, carried out in float64 from their arguments."""

from __future__ import annotations

import torch
from tensorhub_cuda.catalog import kernel
from tensorhub_cuda.launch import matrix_operands
from tensorhub_cuda.launch.torch_op import fake_block_fp8_linear

from tests.kernels.mock_driver import reference_execution
from tests.kernels.mock_driver.driver import MockDriver
from tests.kernels.mock_driver.launch_checks import named_arguments
from tests.kernels.mock_driver.operands import operands
from tests.kernels.mock_driver.scenario import assert_close, project, scenario, unavailable

#: (m, n, k) and the kernel that w8a16 has for them: rows of both small kernels and the tile, tails of every kind, one of each.
SIZES = [
    ((1, 1, 1), "block_fp8_w8a16_small_m8"),
    ((8, 130, 257), "block_fp8_w8a16_small_m8"),
    ((9, 128, 128), "block_fp8_w8a16_small_m16"),
    ((16, 200, 384), "block_fp8_w8a16_small_m16"),
    ((17, 129, 272), "block_fp8_w8a16_tile"),
    ((70, 300, 272), "block_fp8_w8a16_tile"),
    ((33, 200, 300), "block_fp8_w8a16_small_m16"),
]


@scenario
def kernels_by_size(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    for (m, n, k), wanted in SIZES:
        for grid in ("block", "row"):
            for biased in (False, True):
                case = operands(m, n, k, "w8a16", grid, biased=biased)
                assert_close(project(driver, case), case)
                assert driver.launches[-1].kernel == wanted, (m, k, driver.launches[-1].kernel)
    assert len(driver.launches) == len(SIZES) * 4


@scenario
def full_precision_takes_any_size(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    for m, n, k in ((1, 1, 1), (5, 130, 257), (40, 300, 272)):
        for grid in ("block", "row"):
            case = operands(m, n, k, "w8a32", grid, biased=True)
            assert_close(project(driver, case), case)
    assert {launch.kernel for launch in driver.launches} == {"block_fp8_w8a32_tile"}


@scenario
def activations_are_quantized_first(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    for grid in ("block", "row"):
        case = operands(21, 200, 272, "w8a8", grid, biased=True)
        driver.launches.clear()
        assert_close(project(driver, case), case)
        first, second = driver.launches
        assert (first.kernel, second.kernel) == ("quantize_activations", "block_fp8_w8a8_tile")
        made, used = named_arguments(first), named_arguments(second)
        assert (made["codes"], made["x_scale"]) == (used["x"], used["x_scale"])
        assert used["x_stride"] == 272


@scenario
def odd_layouts(driver: MockDriver) -> None:
    """Padded rows, offsets into a storage, leading dimensions, rows that no one stride reaches, one row, repeated rows."""
    driver.execute = reference_execution.execute
    for compute in ("w8a16", "w8a32", "w8a8"):
        for layout in ("padded", "offset", "three dimensions", "not collapsible", "vector", "one row of a wide matrix", "repeated row"):
            case = operands(24, 200, 272, compute, "block", biased=True, layout=layout)
            before = case.x.clone()
            assert_close(project(driver, case), case)
            assert torch.equal(before, case.x)
            arguments = named_arguments(driver.launches[-1])
            assert arguments["weight_stride"] == case.weight.stride(0)
            if layout == "not collapsible":
                assert named_arguments(driver.launches[-1 if compute != "w8a8" else -2])["x"] != case.x.data_ptr(), "copied"
            if layout in ("padded", "offset") and compute != "w8a8":
                assert arguments["x"] == case.x.data_ptr(), "not copied"


@scenario
def alignment_chooses(driver: MockDriver) -> None:
    """An odd offset of weight or x leads to the kernel that loads bytes; w8a8 refuses such a weight, and takes such an x."""
    driver.execute = reference_execution.execute
    for layout, wanted in (("weight off by one", "small_m16"), ("x off by one", "small_m16"), ("padded", "tile")):
        case = operands(24, 200, 272, "w8a16", "block", layout=layout)
        assert_close(project(driver, case), case)
        assert driver.launches[-1].kernel == f"block_fp8_w8a16_{wanted}", (layout, driver.launches[-1].kernel)
    case = operands(24, 200, 272, "w8a8", "block", layout="x off by one")
    assert_close(project(driver, case), case)
    count = len(driver.launches)
    for layout, k in (("weight off by one", 272), ("plain", 264)):
        with unavailable("alignment", "block_fp8_w8a8_tile"):
            project(driver, operands(24, 200, k, "w8a8", "block", layout=layout))
    assert len(driver.launches) == count, "refused before the activations were quantized"


@scenario
def rows_keep_their_origin(driver: MockDriver) -> None:
    """scale_rows: rows of several members, each with its own blocks."""
    driver.execute = reference_execution.execute
    for compute in ("w8a16", "w8a32", "w8a8"):
        case = operands(5, 300, 272, compute, "block", members=(130, 1, 169))
        assert_close(project(driver, case), case)
        plain = named_arguments(driver.launches[-1])
        assert plain["scale_rows"] == case.scale_rows.data_ptr()  # type: ignore[union-attr]  # the case has members


@scenario
def many_rows_in_several_launches(driver: MockDriver) -> None:
    """More than 65,535 tiles of rows, and with a smaller limit every kernel over more launches."""
    driver.execute = reference_execution.execute
    case = operands(65535 * 16 + 5, 1, 1, "w8a16", "block")
    assert_close(project(driver, case), case)
    assert [launch.grid[1] for launch in driver.launches] == [65535, 1]
    limit = matrix_operands.LARGEST_GRID_Y
    matrix_operands.LARGEST_GRID_Y = 2  # type: ignore[misc]  # a smaller machine, for the test
    try:
        for compute, n, k in (("w8a16", 140, 272), ("w8a16", 140, 130), ("w8a32", 70, 130), ("w8a8", 140, 144)):
            driver.launches.clear()
            case = operands(300, n, k, compute, "block", biased=True, layout="padded")
            assert_close(project(driver, case), case)
            tile_m = kernel(driver.launches[-1].kernel).tile_m
            matrix = [launch for launch in driver.launches if launch.kernel != "quantize_activations"]
            assert len(matrix) == -(-300 // (2 * tile_m))
            assert sum(named_arguments(launch)["m"] for launch in matrix) == 300
    finally:
        matrix_operands.LARGEST_GRID_Y = limit  # type: ignore[misc]  # as above


@scenario
def nothing_to_do_launches_nothing(driver: MockDriver) -> None:
    for compute in ("w8a16", "w8a32", "w8a8"):
        for grid in ("block", "row"):
            for m, n, k in ((0, 5, 16), (4, 0, 16), (4, 5, 0), (0, 0, 0)):
                for biased in (False, True):
                    case = operands(m, n, k, compute, grid, biased=biased)
                    y = project(driver, case)
                    assert y.shape == (m, n)
                    wanted = torch.zeros(m, n) if case.bias is None else case.bias.expand(m, n)
                    assert torch.equal(y, wanted.to(y.dtype))
    assert driver.calls("cuLaunchKernelEx") == 0
    assert driver.calls("cuLibraryLoadData") == 0


@scenario
def fake_results_are_those_of_the_real(driver: MockDriver) -> None:
    driver.execute = reference_execution.execute
    for compute in ("w8a16", "w8a32", "w8a8"):
        for layout in ("plain", "padded", "three dimensions", "not collapsible", "vector", "one row of a wide matrix"):
            case = operands(24, 200, 272, compute, "block", layout=layout)
            real, fake = project(driver, case), fake_block_fp8_linear(*case.on("meta").call)
            assert (real.shape, real.dtype, real.stride()) == (fake.shape, fake.dtype, fake.stride())

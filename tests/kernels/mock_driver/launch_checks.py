"""What a launch must look like: written from the calling convention, not from the code that launches."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_cuda.catalog import Kernel
from tensorhub_cuda.catalog import kernel as kernel_of_catalog

from tests.kernels.mock_driver.driver import Launch

#: Names and bytes of the parameters, in their order.
MATRIX = {
    **dict.fromkeys(("weight", "scale", "scale_rows", "x", "x_scale", "bias", "y", "weight_stride", "x_stride"), 8),
    **dict.fromkeys(("m", "n", "k", "scale_stride", "scale_row_shift", "scale_column_step"), 4),
}
QUANTIZE = {**dict.fromkeys(("x", "codes", "x_scale", "x_stride"), 8), "m": 4, "k": 4}

#: Bytes that a pointer of a matrix kernel is a multiple of: of what its elements are.
_NATURAL = {"weight": 1, "scale": 4, "scale_rows": 4, "x_scale": 4}
_ITEM_BYTES = {"w8a16": (2, 2), "w8a32": (4, 4), "w8a8": (1, 2)}


def parameters_of(compute: str) -> dict[str, int]:
    """Return names and bytes of the parameters of a compute's kernels."""
    return QUANTIZE if compute == "quantize" else MATRIX


def named_arguments(launch: Launch) -> dict[str, int]:
    """Return the arguments of a launch by name."""
    return dict(zip(parameters_of(kernel_of_catalog(launch.kernel).compute), launch.arguments, strict=True))


def problems(launch: Launch) -> list[str]:
    """Return everything about a launch that is not as the calling convention and the catalog have it."""
    kernel = kernel_of_catalog(launch.kernel)
    wanted_sizes = tuple(parameters_of(kernel.compute).values())
    if launch.parameter_sizes != wanted_sizes:
        return [f"parameters of {wanted_sizes} bytes, not {launch.parameter_sizes}"]
    return [*_of_blocks(launch, kernel), *(_of_quantize(launch) if kernel.compute == "quantize" else _of_matrix(launch, kernel))]


def _of_blocks(launch: Launch, kernel: Kernel) -> Iterator[str]:
    arguments = named_arguments(launch)
    columns = arguments["k"] if kernel.compute == "quantize" else arguments["n"]
    grid = ((columns + kernel.tile_n - 1) // kernel.tile_n, (arguments["m"] + kernel.tile_m - 1) // kernel.tile_m, 1)
    if launch.grid != grid:
        yield f"grid {grid}, not {launch.grid}"
    if launch.grid[1] > 65535:
        yield f"at most 65535 blocks along y, not {launch.grid[1]}"
    if launch.block != (kernel.threads, 1, 1):
        yield f"{kernel.threads} threads, not {launch.block}"
    if launch.shared_bytes != kernel.shared_bytes:
        yield f"{kernel.shared_bytes} bytes of shared memory, not {launch.shared_bytes}"
    if min(arguments["m"], arguments["k"]) < 1:
        yield f"sizes of at least 1: {arguments}"


def _of_quantize(launch: Launch) -> Iterator[str]:
    arguments = named_arguments(launch)
    if not all(arguments[name] for name in ("x", "codes", "x_scale")):
        yield f"no null pointers: {arguments}"


def _of_matrix(launch: Launch, kernel: Kernel) -> Iterator[str]:
    arguments = named_arguments(launch)
    x_bytes, y_bytes = _ITEM_BYTES[kernel.compute]
    if not all(arguments[name] for name in ("weight", "scale", "x", "y")):
        yield f"no null pointers: {arguments}"
    if bool(arguments["x_scale"]) != (kernel.compute == "w8a8"):
        yield f"x_scale {arguments['x_scale']:#x} for {kernel.compute}"
    for name, bytes_ in {**_NATURAL, "x": x_bytes, "bias": y_bytes, "y": y_bytes}.items():
        if arguments[name] % bytes_:
            yield f"{name} {arguments[name]:#x}: a multiple of {bytes_}"
    by_block = (arguments["scale_row_shift"], arguments["scale_column_step"]) == (7, 1)
    by_row = (arguments["scale_row_shift"], arguments["scale_column_step"], arguments["scale_stride"]) == (0, 0, 1)
    if not by_row and not (by_block and arguments["scale_stride"] == (arguments["k"] + 127) // 128):
        yield f"a grid by block or by row: {arguments}"
    if kernel.needs_alignment:
        together = arguments["weight"] | arguments["weight_stride"] | arguments["x"] | arguments["x_stride"] * x_bytes
        if together % 16 or arguments["k"] % 16:
            yield f"rows of weight and x on 16 bytes, k a multiple of 16: {arguments}"

"""What a launch costs in Python, on a driver that does nothing: microseconds of each part and of the whole."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from tensorhub_cuda.launch import driver as kernel_launch
from tensorhub_cuda.launch.choose import choose_kernel
from tensorhub_cuda.launch.driver import launch_matrix
from tensorhub_cuda.launch.loaded import LOADED_KERNELS, prepare_kernels
from tensorhub_cuda.launch.matrix_operands import MatrixOperands
from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.torch_op import block_fp8_linear, linear_on_stream

from tests.kernels.mock_driver.driver import MockDriver

M, N, K = 4, 384, 512


def launch_cost(driver: MockDriver, repeats: int = 20, rounds: int = 400) -> dict[str, float]:
    """Return the least microseconds of many short rounds for each part; the operands are 4 x 384 x 512.

    `operator` is the whole way through torch's dispatcher, under inference_mode; torch's device guard and its look-up of the
    current stream, which need a CUDA build, are not in it.
    """
    driver.make_current(0)
    stream = driver.create_stream(0)
    prepare_kernels(0, ["w8a16", "w8a8"])
    driver.record_nothing()
    x = torch.zeros(M, K, dtype=torch.bfloat16)
    weight, scale = torch.zeros(N, K, dtype=torch.uint8), torch.zeros(3, 4)
    operands = MatrixOperands(1 << 20, 1 << 21, 0, 1 << 22, 0, 0, 1 << 23, K, K, M, N, K, 4, 7, 1)
    kernel = choose_kernel("w8a16", M, K, 90, aligned=True)
    handle = LOADED_KERNELS[kernel.name, 0].handle
    configuration = kernel_launch._configuration(24, 1, kernel.threads, kernel.shared_bytes)
    cuda_stream = kernel_launch._stream(0, stream)
    integers = tuple(kernel_launch._int32(value) for value in (M, N, K, 4, 7, 1))
    pointers = (1 << 20, 1 << 21, 0, 1 << 22, 0, 0, 1 << 23, K, K)
    launch = kernel_launch._core().launch
    call = (x, weight, scale, None, None)

    library = torch.library.Library("tensorhub_cost", "DEF")  # type: ignore[no-untyped-call]  # torch does not annotate it
    schema = block_fp8_linear._schema
    library.define(str(schema).replace("tensorhub::", ""))

    def on_stream(*arguments: object) -> torch.Tensor:
        require_operands(*arguments)  # type: ignore[arg-type]  # as the operator passes them
        return linear_on_stream(*arguments, device_index=0, stream=stream)  # type: ignore[arg-type]  # as above

    library.impl("block_fp8_linear", on_stream, "CPU")
    operator = torch.ops.tensorhub_cost.block_fp8_linear.default
    parts: dict[str, Callable[[], object]] = {
        "cuda.core.launch alone": lambda: launch(cuda_stream, configuration, handle, *pointers, *integers),
        "launch_matrix": lambda: launch_matrix(kernel, operands, device_index=0, stream=stream),
        "require_operands": lambda: require_operands(*call, "w8a16", "block"),
        "linear_on_stream": lambda: linear_on_stream(*call, "w8a16", "block", device_index=0, stream=stream),
        "linear_on_stream, w8a8": lambda: linear_on_stream(*call, "w8a8", "block", device_index=0, stream=stream),
        "empty y": lambda: x.new_empty((M, N)),
        "operator": lambda: operator(*call, "w8a16", "block"),
    }
    with torch.inference_mode():
        return {name: _least(part, repeats, rounds) for name, part in parts.items()}


def _least(part: Callable[[], object], repeats: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            part()
        best = min(best, (time.perf_counter() - begin) / repeats * 1e6)
    return best

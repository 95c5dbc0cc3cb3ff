"""The operator on the CPU: what it means against float64 and ml_dtypes, beside the CUDA kernels' own source, and in compiled graphs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from tensorhub_cuda.catalog import kernel
from tensorhub_cuda.errors import KernelArgumentError
from tensorhub_cuda.launch.torch_op import block_fp8_linear
from tensorhub_decoders.resident.linear import BlockFp8Linear, RowFp8Linear
from tensorhub_decoders.resident.multiply import block_fp8_linear_cpu

from tests.kernels.emulator.emulator import grid_of, product_emulator

GENERATOR = torch.Generator().manual_seed(77)


def codes(rows: int, columns: int) -> torch.Tensor:
    found = torch.randint(0, 256, (rows, columns), dtype=torch.uint8, generator=GENERATOR)
    found[(found & 0x7F) == 0x7F] = 0x2B
    return found


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=GENERATOR) * 3e-3 + 1e-4


def activations(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR).to(dtype)


def dense(weight: torch.Tensor, scale: torch.Tensor, rows: list[int] | None, grid: str) -> np.ndarray:
    """The weight in float64, by ml_dtypes' decoding, unrounded."""
    values = weight.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    wide = scale.numpy().astype(np.float64)
    if grid == "row":
        return values * wide[:, None]
    own = rows if rows is not None else [row // 128 for row in range(weight.shape[0])]
    return values * np.repeat(wide[own], 128, axis=1)[:, : weight.shape[1]]


def exact(x: torch.Tensor, matrix: np.ndarray, bias: torch.Tensor | None) -> np.ndarray:
    y = x.double().numpy() @ matrix.T
    return y if bias is None else y + bias.double().numpy()


def error(found: torch.Tensor, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found.double().numpy() - wanted) / np.linalg.norm(wanted))


MEMBERS = [0] * 100 + [1] * 28 + [2] * 57 + [4] * 15  # members of 128 and 57 rows, and a slice of a third; row 3 is nobody's


@pytest.mark.parametrize("grid", ["block", "row", "members"])
@pytest.mark.parametrize(("compute", "bound"), [("w8a32", 1e-6), ("w8a16", 4e-3)])
@pytest.mark.parametrize("columns", [64, 129, 200, 400])  # 200: square, where a shape says nothing of the direction
def test_it_is_what_float64_says(grid: str, compute: str, bound: float, columns: int) -> None:
    weight = codes(200, columns)
    rows = MEMBERS if grid == "members" else None
    scale = scales(200) if grid == "row" else scales(5 if rows else 2, -(-columns // 128))
    dtype = torch.float32 if compute == "w8a32" else torch.bfloat16
    x, bias = activations(3, 5, columns, dtype=dtype), activations(200, dtype=dtype)
    owners = None if rows is None else torch.tensor(rows, dtype=torch.int32)
    named = "row" if grid == "row" else "block"
    found = block_fp8_linear(x, weight, scale, owners, bias, compute, named)
    assert (found.shape, found.dtype) == ((3, 5, 200), dtype)
    wanted = exact(x.reshape(-1, columns), dense(weight, scale, rows, named), bias)
    assert error(found.reshape(-1, 200), wanted) < bound
    if rows is not None:  # the control: blocks counted from the first row of all would be seen
        wrong = exact(x.reshape(-1, columns), dense(weight, scale, None, named), bias)
        assert error(found.reshape(-1, 200), wrong) > 10 * bound


@pytest.mark.parametrize(("rows", "columns"), [(5, 144), (37, 400)])
def test_w8a8_quantizes_as_the_kernel_does(rows: int, columns: int) -> None:
    weight, scale, x = codes(150, columns), scales(2, -(-columns // 128)), activations(rows, columns, dtype=torch.bfloat16)
    padded = np.zeros((rows, -(-columns // 128) * 128), np.float32)
    padded[:, :columns] = x.float().numpy()
    groups = padded.reshape(rows, -1, 128)
    own = (np.maximum(np.abs(groups).max(axis=2, keepdims=True), np.float32(1e-12)) / np.float32(448)).astype(np.float32)
    quantized = (groups / own).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * own
    wanted = quantized.reshape(rows, -1)[:, :columns] @ dense(weight, scale, None, "block").T
    found = block_fp8_linear(x, weight, scale, None, None, "w8a8", "block")
    assert error(found, wanted) < 3e-3
    assert error(found, exact(x, dense(weight, scale, None, "block"), None)) > 1e-2, "unquantized activations would be seen"


@pytest.mark.parametrize(("m", "n", "k"), [(1, 65, 128), (7, 200, 300), (33, 130, 97)])
def test_the_cpu_lane_and_the_kernel_of_w8a32_agree(m: int, n: int, k: int) -> None:
    weight, scale, x = codes(n, k), scales(-(-n // 128), -(-k // 128)), activations(m, k, dtype=torch.float32)
    chosen = kernel("block_fp8_w8a32_tile")
    y = np.full((m, n), np.nan, np.float32)
    call = [weight.numpy(), scale.numpy(), None, x.numpy(), None, None, y, k, k, m, n, k, scale.shape[1], 7, 1]
    product_emulator().launch(chosen, grid_of(chosen, m, n), call)
    found = block_fp8_linear_cpu(x, weight, scale, None, None, "w8a32", "block")
    assert float(np.linalg.norm(found.numpy() - y) / np.linalg.norm(y)) < 1e-6


@pytest.mark.parametrize("compute", ["w8a16", "w8a32", "w8a8"])
@pytest.mark.parametrize("grid", ["block", "row"])
def test_opcheck(compute: str, grid: str) -> None:
    x = activations(4, 272, dtype=torch.float32 if compute == "w8a32" else torch.bfloat16)
    scale = scales(200) if grid == "row" else scales(2, 3)
    results = torch.library.opcheck(block_fp8_linear, (x, codes(200, 272), scale, None, None, compute, grid))
    assert set(results.values()) == {"SUCCESS"}


def test_wrong_operands_are_refused_on_the_cpu_too() -> None:
    with pytest.raises(KernelArgumentError, match="scale"):
        block_fp8_linear(activations(2, 128, dtype=torch.float32), codes(130, 128), scales(1, 1), None, None, "w8a32", "block")


@pytest.mark.parametrize("make", ["block", "row", "slice"])
@pytest.mark.parametrize("bits", [16, 32])
def test_a_module_compiles_whole_and_means_the_same(make: str, bits: int) -> None:
    dtype = torch.bfloat16 if bits == 16 else torch.float32
    weight, bias = codes(200, 320).view(torch.float8_e4m3fn), activations(200, dtype=dtype)
    if make == "row":
        module: torch.nn.Module = RowFp8Linear(weight, scales(200), bias, activation_bits=bits)
    elif make == "slice":
        module = BlockFp8Linear(weight, scales(3, 3).to(torch.bfloat16), bias, activation_bits=bits, first_row=70)
    else:
        module = BlockFp8Linear(weight, scales(2, 3), bias, activation_bits=bits)
    torch._dynamo.reset()  # one function, other modules
    compiled = torch.compile(lambda x: torch.relu(module(x * 2)), fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.inference_mode():
        for rows in (1, 6, 19):
            x = activations(rows, 320, dtype=dtype)
            assert torch.equal(compiled(x), torch.relu(module(x * 2)))

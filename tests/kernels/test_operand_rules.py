"""Operands that are judged before anything is launched. Launches themselves are tried on the mock driver (test_mock_driver)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensorhub_cuda.errors import KernelArgumentError, KernelUnavailable
from tensorhub_cuda.launch.operand_rules import require_operands
from tensorhub_cuda.launch.torch_op import block_fp8_linear_cuda, linear_on_stream, prepare

from tests.kernels.mock_driver.operands import operands

#: A right call, 5 x 200 x 300 with bias, and what may stand in the place of one operand: the words of the refusal.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "x of another dtype": ({"x": torch.zeros(5, 300)}, "x: torch.bfloat16 for w8a16, not torch.float32"),
    "x of another K": ({"x": torch.zeros(5, 299, dtype=torch.bfloat16)}, "x [5, 299] and weight [200, 300]"),
    "x a scalar": ({"x": torch.zeros((), dtype=torch.bfloat16)}, "x: [..., K], not a scalar"),
    "x transposed": ({"x": torch.zeros(300, 5, dtype=torch.bfloat16).t()}, "x: the last dimension contiguous, not of stride 5"),
    "x elsewhere": ({"x": torch.zeros(5, 300, dtype=torch.bfloat16, device="meta")}, "weight: on meta, as x, not on cpu"),
    "weight as FP8": ({"weight": torch.zeros(200, 300).to(torch.float8_e4m3fn)}, "weight: codes as torch.uint8"),
    "weight of one dimension": ({"weight": torch.zeros(300, dtype=torch.uint8)}, "weight: [N, K], not [300]"),
    "weight transposed": (
        {"weight": torch.zeros(300, 200, dtype=torch.uint8).t()},
        "weight: the last dimension contiguous, not of stride 200",
    ),
    "weight elsewhere": ({"weight": torch.zeros(200, 300, dtype=torch.uint8, device="meta")}, "weight: on cpu, as x, not on meta"),
    "weight of too many rows": ({"weight": torch.empty(2**31, 300, dtype=torch.uint8, device="meta")}, "at most 2,147,483,647 rows"),
    "scale of another dtype": ({"scale": torch.zeros(2, 3, dtype=torch.bfloat16)}, "scale: torch.float32 [2, 3], contiguous"),
    "scale by row": (
        {"scale": torch.zeros(200)},
        "[2, 3], contiguous, on cpu for the grid block, not torch.float32 [200]",
    ),
    "scale transposed": ({"scale": torch.zeros(3, 2).t()}, "of strides [1, 2]"),
    "scale's direction": ({"scale": torch.zeros(3, 2)}, "scale: torch.float32 [2, 3]"),
    "scale one block short": ({"scale": torch.zeros(1, 3)}, "scale: torch.float32 [2, 3]"),
    "scale elsewhere": (
        {"scale": torch.zeros(2, 3, device="meta")},
        "on cpu for the grid block, not torch.float32 [2, 3] of",
    ),
    "scale_rows of another dtype": ({"scale_rows": torch.zeros(200, dtype=torch.int64)}, "scale_rows: torch.int32 [200]"),
    "scale_rows of another length": ({"scale_rows": torch.zeros(2, dtype=torch.int32)}, "scale_rows: torch.int32 [200]"),
    "scale_rows with gaps": ({"scale_rows": torch.zeros(400, dtype=torch.int32)[::2]}, "of strides [2]"),
    "scale_rows and a grid of other columns": (
        {"scale_rows": torch.zeros(200, dtype=torch.int32), "scale": torch.zeros(9, 2)},
        "scale: torch.float32 [9, 3]",
    ),
    "scale_rows elsewhere": (
        {"scale_rows": torch.zeros(200, dtype=torch.int32, device="meta")},
        "scale_rows: torch.int32 [200], contiguous, on cpu",
    ),
    "grid by row": ({"grid": "row"}, "scale: torch.float32 [200], contiguous, on cpu for the grid row"),
    "scale_rows for a grid by row": (
        {"grid": "row", "scale": torch.zeros(200), "scale_rows": torch.zeros(200, dtype=torch.int32)},
        "scale_rows: only for the grid block",
    ),
    "bias of another dtype": ({"bias": torch.zeros(200)}, "bias: torch.bfloat16 [200], contiguous, on cpu, not torch.float32"),
    "bias of another length": ({"bias": torch.zeros(1, dtype=torch.bfloat16)}, "bias: torch.bfloat16 [200]"),
    "bias with gaps": ({"bias": torch.zeros(400, dtype=torch.bfloat16)[::2]}, "of strides [2]"),
    "bias elsewhere": ({"bias": torch.zeros(200, dtype=torch.bfloat16, device="meta")}, "bias: torch.bfloat16 [200], contiguous, on cpu"),
    "another compute": ({"compute": "w4a16"}, "compute: one of w8a16, w8a32, w8a8, not 'w4a16'"),
    "another grid": ({"grid": "column"}, "grid: one of block, row, not 'column'"),
}


def right() -> dict[str, Any]:
    case = operands(5, 200, 300, "w8a16", "block", biased=True)
    return dict(zip(("x", "weight", "scale", "scale_rows", "bias", "compute", "grid"), case.call, strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operand_is_named(name: str) -> None:
    changed, words = WRONG[name]
    with pytest.raises(KernelArgumentError) as caught:
        require_operands(**{**right(), **changed})
    assert any(words in violation for violation in caught.value.violations), caught.value.violations


@pytest.mark.parametrize("compute", ["w8a16", "w8a32", "w8a8"])
@pytest.mark.parametrize("grid", ["block", "row"])
def test_right_operands_pass(compute: str, grid: str) -> None:
    for layout in ("plain", "padded", "offset", "three dimensions", "not collapsible", "vector", "repeated row"):
        for size in ((6, 200, 300), (0, 5, 16), (4, 0, 16), (4, 5, 0), (2, 1, 1)):
            if layout == "plain" or size[0] == 6:
                require_operands(*operands(*size, compute, grid, biased=True, layout=layout).call)
    if grid == "block":
        require_operands(*operands(6, 300, 300, compute, grid, members=(130, 170)).call)


def test_strides_that_mean_nothing_are_not_judged() -> None:
    """The last dimension of one column, which torch gives any stride."""
    call = {**right(), "x": torch.zeros(1, 7, dtype=torch.bfloat16).t(), "weight": torch.zeros(1, 200, dtype=torch.uint8).t()}
    require_operands(**{**call, "scale": torch.zeros(2, 1)})


def test_everything_wrong_is_listed_before_anything_is_launched() -> None:
    wrong = {"x": torch.zeros(5, 299), "scale": torch.zeros(3, 2), "bias": torch.zeros(7), "compute": "w8a16"}
    for call in (require_operands, block_fp8_linear_cuda):
        with pytest.raises(KernelArgumentError) as caught:
            call(**{**right(), **wrong})
        assert len(caught.value.violations) == 4
        assert str(caught.value) == "; ".join(caught.value.violations)


def test_other_devices_are_refused() -> None:
    with pytest.raises(KernelArgumentError, match="a CUDA device, not cpu"):
        block_fp8_linear_cuda(**right())
    with pytest.raises(KernelArgumentError, match="a CUDA device, not cpu"):
        prepare("cpu", ["w8a16"])


def test_more_rows_than_a_kernel_counts_are_refused() -> None:
    case = operands(2, 1, 1, "w8a16", "block")
    x = case.x[:1].expand(2**31, 1).to("meta")
    call = (x, *(None if each is None else each.to("meta") for each in case.call[1:5]), "w8a16", "block")
    with pytest.raises(KernelArgumentError, match="at most 2,147,483,647 rows"):
        linear_on_stream(*call, device_index=0, stream=0)  # type: ignore[arg-type]  # tensors where tensors must be


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens where there is no driver")
def test_without_a_driver_the_refusal_is_typed() -> None:
    case = operands(2, 3, 16, "w8a16", "block")
    with pytest.raises(KernelUnavailable) as caught:
        linear_on_stream(*case.call, device_index=0, stream=0)
    assert (caught.value.decided_by, caught.value.object) == ("driver", "CUDA device 0")


def test_empty_results_need_no_driver() -> None:
    for m, n, k in ((0, 3, 16), (2, 0, 16), (2, 3, 0)):
        case = operands(m, n, k, "w8a16", "block", biased=True)
        assert linear_on_stream(*case.call, device_index=0, stream=0).shape == (m, n)

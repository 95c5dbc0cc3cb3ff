"""Every kernel on every case that it serves, launched by name through the plain launch interface, between guards that it must not touch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from tensorhub_cuda.catalog import BLOCK, KERNELS, Kernel, kernel
from tensorhub_cuda.launch.driver import launch_matrix, launch_quantize
from tensorhub_cuda.launch.matrix_operands import MatrixOperands

from tests.kernels.oracle.verdicts import same_bits
from tests.kernels.receipt.cases import Case, CaseOperands, operands_of
from tests.kernels.receipt.checks import NotRunError, Outcome, Receipt, require
from tests.kernels.receipt.machine import GuardedOutput, Machine, take


def check_kernels(receipt: Receipt, machine: Machine, cases: list[Case], tables: Mapping[str, NDArray[Any]]) -> None:
    """Quantize the oracle's activations, and multiply: each kernel on each case of its lane, whichever kernel a call would choose."""
    quantizer = kernel("quantize_activations")
    receipt.check(
        f"kernel: {quantizer.name} on conversions", lambda: _quantize_table(machine, tables), required=machine.sm >= quantizer.minimum_sm
    )
    for case in cases:
        for each in KERNELS:
            if each.compute == case.lane and (case.is_aligned or not each.needs_alignment):
                name = f"kernel: {each.name} on {case.name}"
                receipt.check(name, lambda case=case, each=each: _multiply(machine, each, case), required=machine.sm >= each.minimum_sm)


def _require_supported(machine: Machine, each: Kernel) -> None:
    if machine.sm < each.minimum_sm:
        raise NotRunError(f"sm_{machine.sm} is below the kernel's minimum compute capability, sm_{each.minimum_sm}")


def _quantize_table(machine: Machine, tables: Mapping[str, NDArray[Any]]) -> str:
    _require_supported(machine, kernel("quantize_activations"))
    _quantized(machine, machine.put(tables["quantize.x"]), tables["quantize.codes"], tables["quantize.scale"])
    return f"{tables['quantize.codes'].size} codes and their scales, all bits equal"


def _quantized(machine: Machine, x: torch.Tensor, codes: NDArray[Any], scales: NDArray[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize x [m, k] and require the codes and scales expected, bit for bit."""
    m, k = x.shape
    outputs = GuardedOutput(machine, (m, k), torch.uint8), GuardedOutput(machine, (m, -(-k // BLOCK)), torch.float32)
    launch_quantize(
        kernel("quantize_activations"),
        x=x.data_ptr(),
        codes=outputs[0].tensor.data_ptr(),
        x_scale=outputs[1].tensor.data_ptr(),
        x_stride=x.stride(0),
        m=m,
        k=k,
        device_index=machine.device_index,
        stream=machine.stream,
    )
    machine.synchronize()
    for what, output, expected in zip(("codes", "scales"), outputs, (codes, scales), strict=True):
        judgement = same_bits(take(output.tensor), expected)
        require(judgement.passed, f"{what} of activations: {judgement.detail}")
        require(output.guards_hold(), f"{what} of activations: written outside of the output")
    return outputs[0].tensor, outputs[1].tensor


def _multiply(machine: Machine, each: Kernel, case: Case) -> Outcome:
    _require_supported(machine, each)
    operands = operands_of(case, machine)
    m, n, _ = case.size
    x, x_scale = operands.x, None
    if case.lane == "w8a8":
        _require_supported(machine, kernel("quantize_activations"))
        x, x_scale = _quantized(machine, x, case.tensors["w8a8.x_codes"], case.tensors["w8a8.x_scale"])
    output = GuardedOutput(machine, (m, n), torch.float32 if case.lane == "w8a32" else torch.bfloat16)
    launch_matrix(each, matrix_operands(operands, x, x_scale, output.tensor), device_index=machine.device_index, stream=machine.stream)
    machine.synchronize()
    judgement = case.judge(take(output.tensor))
    require(judgement.passed, judgement.detail)
    require(output.guards_hold(), "written outside of the output")
    return judgement.detail, {"compute_path": each.compute_path, "worst": judgement.worst}


def matrix_operands(of: CaseOperands, x: torch.Tensor, x_scale: torch.Tensor | None, y: torch.Tensor) -> MatrixOperands:
    """Return pointers, strides and sizes in the words of the launch interface."""
    by_block = of.grid == "block"
    return MatrixOperands(
        weight=of.weight.data_ptr(),
        scale=of.scale.data_ptr(),
        scale_rows=0 if of.scale_rows is None else of.scale_rows.data_ptr(),
        x=x.data_ptr(),
        x_scale=0 if x_scale is None else x_scale.data_ptr(),
        bias=0 if of.bias is None else of.bias.data_ptr(),
        y=y.data_ptr(),
        weight_stride=of.weight.stride(0),
        x_stride=x.stride(0),
        m=x.shape[0],
        n=of.weight.shape[0],
        k=of.weight.shape[1],
        scale_stride=of.scale.shape[1] if by_block else 1,
        scale_row_shift=7 if by_block else 0,
        scale_column_step=1 if by_block else 0,
    )

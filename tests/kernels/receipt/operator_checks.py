"""What the operator computes: every case through the dispatch, empty and odd shapes, refusals, offsets beyond 2 GiB, a second device."""

from __future__ import annotations

import attrs
import torch
from tensorhub_cuda.catalog import kernel
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import compute_path_of
from tensorhub_cuda.launch.torch_op import block_fp8_linear, linear_on_stream

from tests.kernels.receipt.cases import Case, CaseOperands, operands_of
from tests.kernels.receipt.checks import CheckFailedError, NotRunError, Outcome, Receipt, require
from tests.kernels.receipt.machine import Machine, take

#: Why a check is not run on host memory.
ONLY_ON_GPU = "it needs torch's CUDA, and this is host memory"


def check_operator(receipt: Receipt, machine: Machine, cases: list[Case]) -> None:
    """Check each case through the dispatch of a call, then calls of other shapes, offsets and devices."""
    by_name = {case.name: case for case in cases}
    lane = "w8a16" if machine.sm >= minimum_sm_of("w8a16") else "w8a32"
    for case in cases:
        receipt.check(f"operator: {case.name}", lambda case=case: _dispatch(machine, case), required=machine.sm >= minimum_sm_of(case.lane))
    receipt.check("operator: refuses what w8a8 cannot load", lambda: _refusal(machine, by_name["odd-rows/w8a16"]))
    receipt.check("operator: no rows", lambda: _no_rows(machine, by_name[f"whole-blocks/{lane}"]))
    receipt.check("operator: leading dimensions", lambda: _leading_dimensions(machine, by_name[f"members/{lane}"]))
    receipt.check("operator: storage offset", lambda: _storage_offset(machine, by_name[f"whole-blocks/{lane}"]))
    receipt.check("operator: offsets beyond 2 GiB", lambda: _large_offsets(machine), required=False)
    receipt.check("operator: second device", lambda: _second_device(by_name[f"members/{lane}"]), required=False)


def minimum_sm_of(lane: str) -> int:
    """Return the minimum compute capability of a lane, 80 for 8.0."""
    return {"w8a32": 75, "w8a16": 80, "w8a8": kernel("quantize_activations").minimum_sm}[lane]


def call(machine: Machine, operands: CaseOperands) -> torch.Tensor:
    """Call the operator on a GPU; on host memory, what the operator calls once it has found device and stream."""
    if machine.is_gpu:
        return block_fp8_linear(*operands.arguments())
    return linear_on_stream(*operands.arguments(), device_index=machine.device_index, stream=machine.stream)


def _dispatch(machine: Machine, case: Case) -> Outcome:
    m, _, k = case.size
    aligned = case.is_aligned or (case.lane == "w8a8" and case.facts["weight_stride"] % 16 == 0)
    if machine.sm < minimum_sm_of(case.lane):
        raise NotRunError(f"sm_{machine.sm} is below the minimum compute capability of {case.lane}")
    path = compute_path_of(case.lane, m, k, machine.sm, aligned)
    y = call(machine, operands_of(case, machine))
    machine.synchronize()
    judgement = case.judge(take(y))
    require(judgement.passed, f"{path}: {judgement.detail}")
    return f"{path}: {judgement.detail}", {"compute_path": path, "worst": judgement.worst}


def _refusal(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    refused = attrs.evolve(operands, compute="w8a8")
    try:
        call(machine, refused)
    except KernelUnavailable as refusal:
        require(refusal.decided_by in ("alignment", "floor"), f"refused by {refusal.decided_by}: {refusal}")
        return str(refusal)
    raise CheckFailedError("rows that no 16-byte load can follow were multiplied all the same")


def _no_rows(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    y = call(machine, attrs.evolve(operands, x=operands.x[:0]))
    require(tuple(y.shape) == (0, case.size[1]), f"shape {tuple(y.shape)}")
    return f"x of 0 rows gives y {tuple(y.shape)}"


def _leading_dimensions(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    m, n, k = case.size
    y = call(machine, attrs.evolve(operands, x=operands.x.reshape(2, m // 2, k)))
    machine.synchronize()
    require(tuple(y.shape) == (2, m // 2, n), f"shape {tuple(y.shape)}")
    judgement = case.judge(take(y.reshape(m, n)))
    require(judgement.passed, judgement.detail)
    return judgement.detail


def _storage_offset(machine: Machine, case: Case) -> str:
    """Move weight and x to odd places of larger storages, whose other elements are NaN."""
    operands = operands_of(case, machine)
    moved = attrs.evolve(operands, x=_moved(operands.x, float("nan"), 3), weight=_moved(operands.weight, 0x7F, 5))
    y = call(machine, moved)
    machine.synchronize()
    judgement = case.judge(take(y))
    require(judgement.passed, judgement.detail)
    return judgement.detail


def _moved(matrix: torch.Tensor, fill: float, by: int) -> torch.Tensor:
    rows, columns = matrix.shape
    larger = torch.full((rows + 2, columns + 2 * by), fill, dtype=matrix.dtype, device=matrix.device)
    place = larger[1 : rows + 1, by : by + columns]
    place.copy_(matrix)
    return place


def _large_offsets(machine: Machine) -> str:
    """Put rows of the weight 2³⁰ bytes apart, and rows of x 2³⁰ elements: their offsets pass 2³¹ and 2³²."""
    if not machine.is_gpu:
        raise NotRunError(ONLY_ON_GPU)
    apart, n, m, k = 1 << 30, 6, 3, 128
    needed = apart * (n - 1) + apart * (m - 1) * 2 + (1 << 28)
    if torch.cuda.mem_get_info(machine.memory)[0] < needed:
        raise NotRunError(f"it needs {needed >> 30} GiB of free memory")
    storage = torch.empty(apart * (n - 1) + k, dtype=torch.uint8, device=machine.memory)
    weight = storage.as_strided((n, k), (apart, 1))
    weight.copy_(torch.arange(n * k, device=machine.memory).remainder(120).to(torch.uint8).view(n, k))
    x_storage = torch.empty(apart * (m - 1) + k, dtype=torch.bfloat16, device=machine.memory)
    x = x_storage.as_strided((m, k), (apart, 1))
    x.copy_(torch.linspace(-1, 1, m * k, device=machine.memory).view(m, k))
    scale = torch.full((1, 1), 0.25, device=machine.memory)
    far = call(machine, CaseOperands(x, weight, scale, None, None, "w8a16", "block"))
    near = call(machine, CaseOperands(x.contiguous(), weight.contiguous(), scale, None, None, "w8a16", "block"))
    require(bool(torch.equal(far, near)), "far rows give other numbers than near ones")
    return f"rows {apart:,} elements apart give the same bits as rows that follow each other"


def _second_device(case: Case) -> str:
    """Call for tensors of device 1 while device 0 is current."""
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        raise NotRunError("there are not two devices")
    second = Machine(torch.device("cuda:1"), 1, int("".join(map(str, torch.cuda.get_device_capability(1)))))
    with torch.cuda.device(0):
        y = call(second, operands_of(case, second))
        require(y.device == second.memory, f"y is on {y.device}")
        require(torch.cuda.current_device() == 0, "the call changed the current device")
    second.synchronize()
    judgement = case.judge(take(y))
    require(judgement.passed, judgement.detail)
    return judgement.detail

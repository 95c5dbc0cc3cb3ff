"""The operator inside torch: streams, CUDA graphs, torch.compile, and torch's own checks of an operator. All of it needs torch's CUDA."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

import attrs
import torch
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch import loaded
from tensorhub_cuda.launch.torch_op import block_fp8_linear, prepare

from tests.kernels.receipt.cases import Case, CaseOperands, operands_of
from tests.kernels.receipt.checks import CheckFailedError, NotRunError, Outcome, Receipt, require
from tests.kernels.receipt.machine import Machine, take
from tests.kernels.receipt.operator_checks import ONLY_ON_GPU, call, minimum_sm_of

#: The lanes, by rising minimum compute capability.
_LANES = ("w8a32", "w8a16", "w8a8")


def check_operator_in_torch(receipt: Receipt, machine: Machine, cases: list[Case]) -> None:
    """Call the operator on a busy stream, inside a CUDA graph and compiled; on host memory, record that nothing of it was run."""
    by_name = {case.name: case for case in cases}
    lane = "w8a16" if machine.sm >= minimum_sm_of("w8a16") else "w8a32"
    on_gpu: Mapping[str, Callable[[], Outcome]] = {
        "stream": lambda: _stream(machine, by_name[f"whole-blocks/{lane}"]),
        "no synchronization": lambda: _no_synchronization(machine, by_name[f"whole-blocks/{lane}"]),
        "CUDA graph": lambda: _graphs(machine, by_name),
        "graph without prepare": lambda: _not_prepared(machine, lane),
        "torch.compile": lambda: _compiled(machine, by_name[f"tails/{lane}"], "aot_eager"),
        "opcheck": lambda: _opcheck(machine, by_name[f"members/{lane}"]),
    }
    for name, make in on_gpu.items():
        if machine.is_gpu:
            receipt.check(f"operator: {name}", make)
        else:
            receipt.not_run(f"operator: {name}", ONLY_ON_GPU)
    receipt.check("operator: torch.compile with inductor", lambda: _inductor(machine, by_name[f"tails/{lane}"]), required=False)


def _stream(machine: Machine, case: Case) -> str:
    """Call on a stream that is not the default one and still busy: right only if the kernel waits for what the stream did before."""
    operands = operands_of(case, machine)
    late = torch.full_like(operands.x, float("nan"))
    stream = torch.cuda.Stream(machine.memory)
    torch.cuda.synchronize(machine.memory)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # tens of milliseconds; torch has no public name for it
        late.copy_(operands.x)
        y = call(machine, attrs.evolve(operands, x=late))
    stream.synchronize()
    judgement = case.judge(take(y))
    require(judgement.passed, judgement.detail)
    return f"behind a busy stream: {judgement.detail}"


def _no_synchronization(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    call(machine, operands)
    machine.synchronize()
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(50_000_000)
        end = torch.cuda.Event()
        call(machine, operands)
        end.record()
        require(not end.query(), "the call returned only after the stream was done")
    finally:
        torch.cuda.set_sync_debug_mode(mode)
        machine.synchronize()
    return "the call returns while the stream is busy, and torch saw no synchronization"


def _graphs(machine: Machine, by_name: Mapping[str, Case]) -> Outcome:
    """Capture each lane after `prepare`, then replay with x put in place only after the capture."""
    captured = []
    for lane in _LANES:
        if machine.sm < minimum_sm_of(lane):
            continue
        case = by_name[f"members/{lane}"]
        operands = operands_of(case, machine)
        prepare(machine.memory, [lane])
        place = torch.zeros_like(operands.x)
        call(machine, attrs.evolve(operands, x=place))  # torch's allocator and libraries warm up before a capture
        torch.cuda.synchronize(machine.memory)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call(machine, attrs.evolve(operands, x=place))
        place.copy_(operands.x)
        for _ in range(2):
            y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize(machine.memory)
            judgement = case.judge(take(y))
            require(judgement.passed, f"{case.name}: {judgement.detail}")
        captured.append(lane)
    return f"captured and replayed twice with another x: {', '.join(captured)}"


def _not_prepared(machine: Machine, lane: str) -> str:
    """A kernel that is not loaded yet must be refused inside a capture, by name, and the process must go on."""
    launched = loaded.LOADED_KERNELS  # forgotten for a moment, as in a process that has just begun
    kept = dict(launched)
    x = torch.zeros(1, 128, dtype=torch.float32 if lane == "w8a32" else torch.bfloat16, device=machine.memory)
    weight = torch.zeros(16, 128, dtype=torch.uint8, device=machine.memory)
    operands = CaseOperands(x, weight, torch.ones(1, 1, device=machine.memory), None, None, lane, "block")
    torch.cuda.synchronize(machine.memory)
    launched.clear()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.add_(1)
            call(machine, operands)
    except KernelUnavailable as refusal:
        require(refusal.decided_by == "driver", f"refused by {refusal.decided_by}: {refusal}")
        return f"refused: {refusal}"
    finally:
        launched.update(kept)
        torch.cuda.synchronize(machine.memory)
    raise CheckFailedError("a kernel was loaded inside a capture")


def _inductor(machine: Machine, case: Case) -> str:
    if not machine.is_gpu:
        raise NotRunError(ONLY_ON_GPU)
    if importlib.util.find_spec("triton") is None:
        raise NotRunError("Triton is not installed")
    return _compiled(machine, case, "inductor")


def _compiled(machine: Machine, case: Case, backend: str) -> str:
    operands = operands_of(case, machine)

    def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return block_fp8_linear(x * factor, *operands.arguments()[1:])

    one = torch.ones((), dtype=operands.x.dtype, device=machine.memory)
    torch.compiler.reset()
    compiled = torch.compile(scaled, fullgraph=True, dynamic=True, backend=backend)
    for rows in (case.size[0], 2, 1):
        y, eager = compiled(operands.x[:rows], one), scaled(operands.x[:rows], one)
        require(bool(torch.equal(y, eager)), f"{rows} rows: compiled and eager differ")
    judgement = case.judge(take(compiled(operands.x, one)))
    require(judgement.passed, judgement.detail)
    return f"fullgraph, dynamic, {backend}: {judgement.detail}"


def _opcheck(machine: Machine, case: Case) -> str:
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(block_fp8_linear, operands_of(case, machine).arguments(), test_utils=tests)
    return ", ".join(tests)

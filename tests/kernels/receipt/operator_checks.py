"""The operator and the launching around the kernels: dispatch, empty and odd shapes, refusals, streams, graphs, devices, torch.compile."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

import torch
from tensorhub_cuda.catalog import kernel
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import compute_path_of
from tensorhub_cuda.launch.torch_op import linear_on_stream, prepare

from tests.kernels.receipt.cases import Case, CaseOperands, operands_of
from tests.kernels.receipt.checks import CheckFailedError, NotRunError, Outcome, Receipt, require
from tests.kernels.receipt.machine import Machine, take

#: The lanes in the order of their floors.
_LANES = ("w8a32", "w8a16", "w8a8")

_ONLY_ON_GPU = "it needs torch's CUDA, and this is host memory"


def check_operator(receipt: Receipt, machine: Machine, cases: list[Case]) -> None:
    """Check each case through the production dispatch, then everything around a launch."""
    by_name = {case.name: case for case in cases}
    lane = "w8a16" if machine.sm >= floor_of("w8a16") else "w8a32"
    for case in cases:
        receipt.check(f"operator: {case.name}", lambda case=case: _dispatch(machine, case), required=machine.sm >= floor_of(case.lane))
    receipt.check("operator: refuses what w8a8 cannot load", lambda: _refusal(machine, by_name["odd-rows/w8a16"]))
    receipt.check("operator: no rows", lambda: _no_rows(machine, by_name[f"whole-blocks/{lane}"]))
    receipt.check("operator: leading dimensions", lambda: _leading_dimensions(machine, by_name[f"members/{lane}"]))
    receipt.check("operator: storage offset", lambda: _storage_offset(machine, by_name[f"whole-blocks/{lane}"]))
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
            receipt.not_run(f"operator: {name}", _ONLY_ON_GPU)
    receipt.check("operator: torch.compile with inductor", lambda: _inductor(machine, by_name[f"tails/{lane}"]), required=False)
    receipt.check("operator: offsets beyond 2 GiB", lambda: _large_offsets(machine), required=False)
    receipt.check("operator: second device", lambda: _second_device(by_name[f"members/{lane}"]), required=False)


def floor_of(lane: str) -> int:
    """Return the least compute capability of a lane."""
    return {"w8a32": 75, "w8a16": 80, "w8a8": kernel("quantize_activations").minimum_sm}[lane]


def call(machine: Machine, operands: CaseOperands) -> torch.Tensor:
    """Call the operator on a GPU; on host memory, what the operator calls once it has found device and stream."""
    if machine.is_gpu:
        from tensorhub_cuda.launch.operator import block_fp8_linear

        return block_fp8_linear(*operands.arguments())
    return linear_on_stream(*operands.arguments(), device_index=machine.device_index, stream=machine.stream)


def _dispatch(machine: Machine, case: Case) -> Outcome:
    m, _, k = case.size
    aligned = case.is_aligned or (case.lane == "w8a8" and case.facts["weight_stride"] % 16 == 0)
    if machine.sm < floor_of(case.lane):
        raise NotRunError(f"sm_{machine.sm} is below the floor of {case.lane}")
    path = compute_path_of(case.lane, m, k, machine.sm, aligned)
    y = call(machine, operands_of(case, machine))
    machine.synchronize()
    judgement = case.judge(take(y))
    require(judgement.passed, f"{path}: {judgement.detail}")
    return f"{path}: {judgement.detail}", {"compute_path": path, "worst": judgement.worst}


def _refusal(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    refused = CaseOperands(**{**vars(operands), "compute": "w8a8"})
    try:
        call(machine, refused)
    except KernelUnavailable as refusal:
        require(refusal.decided_by in ("alignment", "floor"), f"refused by {refusal.decided_by}: {refusal}")
        return str(refusal)
    raise CheckFailedError("rows that no 16-byte load can follow were multiplied all the same")


def _no_rows(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    y = call(machine, CaseOperands(**{**vars(operands), "x": operands.x[:0]}))
    require(tuple(y.shape) == (0, case.size[1]), f"shape {tuple(y.shape)}")
    return f"x of 0 rows gives y {tuple(y.shape)}"


def _leading_dimensions(machine: Machine, case: Case) -> str:
    operands = operands_of(case, machine)
    m, n, k = case.size
    y = call(machine, CaseOperands(**{**vars(operands), "x": operands.x.reshape(2, m // 2, k)}))
    machine.synchronize()
    require(tuple(y.shape) == (2, m // 2, n), f"shape {tuple(y.shape)}")
    judgement = case.judge(take(y.reshape(m, n)))
    require(judgement.passed, judgement.detail)
    return judgement.detail


def _storage_offset(machine: Machine, case: Case) -> str:
    """Move weight and x to odd places of larger storages, whose other elements are NaN."""
    operands = operands_of(case, machine)
    moved = CaseOperands(**{**vars(operands), "x": _moved(operands.x, float("nan"), 3), "weight": _moved(operands.weight, 0x7F, 5)})
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


def _stream(machine: Machine, case: Case) -> str:
    """Call on a stream that is not the default one and still busy: right only if the kernel waits for what the stream did before."""
    operands = operands_of(case, machine)
    late = torch.full_like(operands.x, float("nan"))
    stream = torch.cuda.Stream(machine.memory)
    torch.cuda.synchronize(machine.memory)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # tens of milliseconds; torch has no public name for it
        late.copy_(operands.x)
        y = call(machine, CaseOperands(**{**vars(operands), "x": late}))
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
        if machine.sm < floor_of(lane):
            continue
        case = by_name[f"members/{lane}"]
        operands = operands_of(case, machine)
        prepare(machine.memory, [lane])
        place = torch.zeros_like(operands.x)
        call(machine, CaseOperands(**{**vars(operands), "x": place}))  # torch's allocator and libraries warm up before a capture
        torch.cuda.synchronize(machine.memory)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call(machine, CaseOperands(**{**vars(operands), "x": place}))
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
    from tensorhub_cuda.launch import loaded as modules

    launched = modules.LOADED  # forgotten for a moment, as in a process that has just begun
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
        raise NotRunError(_ONLY_ON_GPU)
    if importlib.util.find_spec("triton") is None:
        raise NotRunError("Triton is not installed")
    return _compiled(machine, case, "inductor")


def _compiled(machine: Machine, case: Case, backend: str) -> str:
    from tensorhub_cuda.launch.operator import block_fp8_linear

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
    from tensorhub_cuda.launch.operator import block_fp8_linear

    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(block_fp8_linear, operands_of(case, machine).arguments(), test_utils=tests)
    return ", ".join(tests)


def _large_offsets(machine: Machine) -> str:
    """Put rows of the weight 2³⁰ bytes apart, and rows of x 2³⁰ elements: their offsets pass 2³¹ and 2³²."""
    if not machine.is_gpu:
        raise NotRunError(_ONLY_ON_GPU)
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

"""The table of figures: each lane at shapes of released models, against copy bandwidth and BF16 rate of the same run, beside peers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import torch
from tensorhub_cuda.launch.choose import compute_path_of
from tensorhub_cuda.launch.torch_op import block_fp8_linear, prepare

from tests.kernels.receipt.checks import NotRunError, Outcome, Receipt
from tests.kernels.receipt.machine import Machine
from tests.kernels.receipt.operator_checks import minimum_sm_of
from tests.kernels.receipt.peers import PEERS, Projection
from tests.kernels.receipt.timers import Ceilings, measure_ceilings, microseconds, rotations_for

#: N and K of projections of released models, and the rows of activations: one token, a few, a prompt.
SHAPES = ((7168, 2048), (4096, 7168), (24576, 1536), (5120, 5120))
ROWS = (1, 8, 16, 128, 4096)
_LANES = ("w8a16", "w8a8", "w8a32")

#: Goals, reported and not asserted: of the copy bandwidth at few rows, of the BF16 rate at many.
GOALS = {"of_copy_bandwidth": 0.75, "of_bf16_rate": 0.5}


@attrs.frozen
class Figure:
    """One row of the table. `ceiling_us`: the larger of bytes over copy bandwidth and operations over BF16 rate."""

    n: int
    k: int
    m: int
    lane: str
    compute_path: str
    us: float
    ceiling_us: float
    of_copy_bandwidth: float
    of_bf16_rate: float


def check_timings(receipt: Receipt, machine: Machine, *, quick: bool) -> None:
    """Measure the ceilings, the launch cost, and every shape; `quick` leaves out all shapes but one, and no peer is asked."""
    if not machine.is_gpu:
        receipt.not_run("timings", "the clock of a CPU says nothing of a GPU")
        return
    ceilings: list[Ceilings] = []

    def measure() -> Outcome:
        ceilings.append(measure_ceilings(machine.memory))
        gigabytes, teraflops = ceilings[0].copy_bytes / 1e9, ceilings[0].bf16_operations / 1e12
        return f"copy {gigabytes:.0f} GB/s read and written, BF16 {teraflops:.0f} TFLOP/s", attrs.asdict(ceilings[0])

    if not receipt.check("timings: ceilings", measure):
        return
    receipt.check("timings: launch from Python", lambda: _launch_cost(machine))
    for n, k in SHAPES[:1] if quick else SHAPES:
        for m in ROWS:
            _check_shape(receipt, machine, ceilings[0], n, k, m, peers=not quick)
    if quick:
        receipt.not_run("timings: the other shapes, and peers", "--quick", required=False)


def _check_shape(receipt: Receipt, machine: Machine, ceilings: Ceilings, n: int, k: int, m: int, *, peers: bool) -> None:
    projection: list[Projection] = []

    def of_this_shape() -> Projection:
        if not projection:
            projection.append(Projection.random(n, k, m, machine.memory, rotations_for(machine.memory, n * k)))
        return projection[0]

    for lane in _LANES:
        name = f"timings: {lane} N={n} K={k} M={m}"
        receipt.check(
            name, lambda lane=lane: _time_lane(machine, ceilings, of_this_shape(), lane), required=machine.sm >= minimum_sm_of(lane)
        )
    for peer, make in PEERS.items() if peers else ():
        receipt.check(f"peer: {peer} N={n} K={k} M={m}", lambda make=make: _time_peer(of_this_shape(), make), required=False)


def _time_lane(machine: Machine, ceilings: Ceilings, of: Projection, lane: str) -> Outcome:
    if machine.sm < minimum_sm_of(lane):
        raise NotRunError(f"sm_{machine.sm} is below the minimum compute capability of {lane}")
    prepare(machine.memory, [lane])
    x = of.x_f32 if lane == "w8a32" else of.x
    rotations = of.rotations if of.m <= 128 else 2
    took = microseconds(lambda index: block_fp8_linear(x, of.weights[index], of.scale, None, None, lane, "block"), rotations)
    item = x.element_size()
    moved = of.n * of.k + of.scale.numel() * 4 + of.m * of.k * item + of.m * of.n * item
    operations = 2 * of.m * of.n * of.k
    figure = Figure(
        of.n,
        of.k,
        of.m,
        lane,
        compute_path_of(lane, of.m, of.k, machine.sm, aligned=True),
        us=round(took, 2),
        ceiling_us=round(max(moved / ceilings.copy_bytes, operations / ceilings.bf16_operations) * 1e6, 2),
        of_copy_bandwidth=round(moved / took * 1e6 / ceilings.copy_bytes, 3),
        of_bf16_rate=round(operations / took * 1e6 / ceilings.bf16_operations, 3),
    )
    said = f"{figure.us} us, {figure.of_copy_bandwidth} of the copy bandwidth, {figure.of_bf16_rate} of the BF16 rate"
    return said, attrs.asdict(figure)


def _time_peer(of: Projection, make: Callable[[Projection], Callable[[int], torch.Tensor]]) -> Outcome:
    """Time a peer; what it cannot do here is not run, with its own words, and a wrong answer is not timed."""
    try:
        launch = make(of)
        answer = launch(0).float()
    except Exception as error:  # a peer's own errors share no class
        raise NotRunError(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]) from error
    expected = block_fp8_linear(of.x, of.weights[0], of.scale, None, None, "w8a16", "block").float()
    difference = float((answer - expected).norm() / expected.norm())
    if not difference < 0.1:
        raise NotRunError(f"its answer is off by {difference:.3g} of the answer's size: called wrongly, so not timed")
    took = microseconds(launch, of.rotations if of.m <= 128 else 2)
    return f"{took:.2f} us", {"n": of.n, "k": of.k, "m": of.m, "us": round(took, 2), "difference_from_w8a16": difference}


def _launch_cost(machine: Machine) -> Outcome:
    """Time calls from Python of a projection so small that the host is the slower side, the operator's whole way."""
    prepare(machine.memory, ["w8a16"])
    x = torch.ones(1, 128, dtype=torch.bfloat16, device=machine.memory)
    weight = torch.zeros(128, 128, dtype=torch.uint8, device=machine.memory)
    scale = torch.ones(1, 1, device=machine.memory)
    figures: dict[str, Any] = {}
    with torch.inference_mode():
        for name, call in {
            "operator": lambda: block_fp8_linear(x, weight, scale, None, None, "w8a16", "block"),
            "torch BF16 linear": lambda: torch.nn.functional.linear(x, x),
        }.items():
            for _ in range(200):
                call()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(2000):
                call()
            figures[name] = round((time.perf_counter() - begun) / 2000 * 1e6, 2)
            torch.cuda.synchronize()
    return ", ".join(f"{name} {cost} us" for name, cost in figures.items()), figures

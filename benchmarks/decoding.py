"""What decoding costs: one weight against transformers' dequantization and against a plain copy, and a whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from interleaved import measure, table
from tensorhub_decoders.resident.linear import BlockFp8Linear
from tensorhub_decoders.upcast.strips import upcast_block_scaled
from torch.nn import functional
from trees import write_llama

from tensorhub_contracts import load

#: Most of transformers' time that an upcast may take, by shape.
GOALS = {(4096, 4096): 0.07, (18432, 7168): 0.03}


def dequantize_one_weight() -> None:
    """Block FP8 to BF16 in memory, with one thread and with two; and the same beside a copy that widens as many bytes."""
    for (rows, columns), goal in GOALS.items():
        for threads in (1, 2):
            weight, scale, out = _weight(rows, columns)
            candidates: dict[str, Callable[[], object]] = {
                "transformers' Fp8Dequantize": _threads(threads, lambda w=weight, s=scale: _theirs(w, s)),
                "upcast": _threads(threads, lambda w=weight, s=scale, o=out: upcast_block_scaled(w, s, o)),
            }
            rounds = 5 if rows * columns < 1 << 25 else 3
            found = measure(candidates, base="transformers' Fp8Dequantize", rounds=rounds, megabytes=1536)
            print(table(f"Block FP8 to BF16, {rows} x {columns}, {threads} thread{'s' * (threads > 1)}", found, {"upcast": goal}))
    weight, scale, out = _weight(4096, 4096)
    stored = weight.view(torch.uint8)
    fresh = (lambda: torch.empty(4096, 4096, dtype=torch.bfloat16), lambda: out)
    for make, name, goal in ((fresh[1], "warm", 4.0), (fresh[0], "into fresh pages", 1.3)):
        candidates = {
            "widening copy": _threads(1, lambda make=make: make().view(torch.int16).copy_(stored)),
            "upcast": _threads(1, lambda make=make: upcast_block_scaled(weight, scale, make())),
        }
        print(
            table(
                f"Beside a copy of one byte to two, 4096 x 4096, {name}",
                measure(candidates, base="widening copy", rounds=15),
                {"upcast": goal},
            )
        )


def project_with_stored_weights() -> None:
    """A projection whose weight stays FP8 against one that was upcast ahead of time, by rows of activations; time and bytes."""
    print("### A projection with the stored bytes (`resident=True`) beside one upcast ahead to BF16\n")
    print("| out x in | threads | rows of x | ahead, ms | stored, ms | ratio | goal | bytes of the weight, ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for size in (4096, 5120):
        weight, scale, ahead = _weight(size, size)
        linear = BlockFp8Linear(weight, scale, activation_bits=16)
        upcast_block_scaled(weight, scale, ahead)
        for threads in (1, 2):
            for rows, goal in ((1, 4.8), (16, 3.8), (256, 1.5)):
                x = torch.randn(rows, size).to(torch.bfloat16)
                candidates: dict[str, Callable[[], object]] = {
                    "ahead": _threads(threads, lambda x=x, w=ahead: functional.linear(x, w)),
                    "stored": _threads(threads, lambda x=x, m=linear: m(x)),
                }
                one, other = measure(candidates, base="ahead", rounds=9)
                met = f"≤ {goal}" + ("" if other.ratio <= goal else " **missed**")
                times = f"{one.milliseconds:,.1f} | {other.milliseconds:,.1f} | {other.ratio:.3g} | {met}"
                print(f"| {size} x {size} | {threads} | {rows} | {times} | {linear.nbytes / ahead.nbytes:.3f} |")
    print()


def load_a_checkpoint(scratch: Path) -> None:
    """A 1.8 GB Llama-shaped block-FP8 checkpoint to BF16, with one thread and with two."""
    folder = scratch / "llama"
    write_llama(folder)
    for threads, goal in ((1, 0.20), (2, 0.10)):
        candidates: dict[str, Callable[[], object]] = {
            "from_pretrained, dequantize": _threads(threads, lambda: _from_pretrained(folder)),
            "load": _on_cores(threads, lambda: load(folder, dtype="BF16", resident=False)),
        }
        found = measure(candidates, base="from_pretrained, dequantize", rounds=3, megabytes=6144)
        print(table(f"1.8 GB of block FP8 to BF16 in memory, {threads} thread{'s' * (threads > 1)}", found, {"load": goal}))


def _weight(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes without NaN, scales that are all different, and room for the result."""
    torch.set_num_threads(1)  # candidates run in forks, which do not take a pool of threads along
    codes = torch.randint(0, 256, (rows, columns), dtype=torch.uint8)
    codes[(codes & 0x7F) == 0x7F] = 5
    scale = torch.rand(-(-rows // 128), -(-columns // 128)) * 1e-3 + 1e-4
    return codes.view(torch.float8_e4m3fn), scale, torch.empty(rows, columns, dtype=torch.bfloat16)


def _threads(count: int, work: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        torch.set_num_threads(count)
        return work()

    return run


def _on_cores(count: int, work: Callable[[], object]) -> Callable[[], object]:
    """Run on as many cores: the loader has a thread for each."""
    import os

    def run() -> object:
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:count]))
        return work()

    return run


def _theirs(weight: torch.Tensor, scale: torch.Tensor) -> object:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    return Fp8Dequantize(None)._dequantize_one(weight, scale, torch.bfloat16)


def _from_pretrained(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    return AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=FineGrainedFP8Config(dequantize=True, weight_block_size=(128, 128)), dtype=torch.bfloat16
    )

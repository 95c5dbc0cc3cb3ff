"""What decoding costs: one weight against transformers' dequantization and against a plain copy, and a whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from interleaved import measure, table
from tensorhub_decoders.upcast_strips import upcast_block_scaled
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
                "upcast": _ours(threads, weight, scale, lambda o=out: o),
            }
            rounds = 5 if rows * columns < 1 << 25 else 3
            found = measure(candidates, base="transformers' Fp8Dequantize", rounds=rounds)
            print(table(f"Block FP8 to BF16, {rows} x {columns}, {threads} thread{'s' * (threads > 1)}", found, {"upcast": goal}))
    weight, scale, out = _weight(4096, 4096)
    stored = weight.view(torch.uint8)
    fresh = (lambda: torch.empty(4096, 4096, dtype=torch.bfloat16), lambda: out)
    for make, name, goal in ((fresh[1], "warm", 4.0), (fresh[0], "into fresh pages", 1.3)):
        candidates = {
            "widening copy": _threads(1, lambda make=make: make().view(torch.int16).copy_(stored)),
            "upcast": _ours(1, weight, scale, make),
        }
        print(
            table(
                f"Beside a copy of one byte to two, 4096 x 4096, {name}",
                measure(candidates, base="widening copy", rounds=15),
                {"upcast": goal},
            )
        )


def load_a_checkpoint(scratch: Path) -> None:
    """A 1.8 GB Llama-shaped block-FP8 checkpoint to BF16, with one thread and with two."""
    folder = scratch / "llama"
    write_llama(folder)
    for threads, goal in ((1, 0.20), (2, 0.10)):
        candidates: dict[str, Callable[[], object]] = {
            "from_pretrained, dequantize": _threads(threads, lambda: _from_pretrained(folder)),
            "load": _on_cores(threads, lambda: load(folder, dtype="BF16", resident=False)),
        }
        found = measure(candidates, base="from_pretrained, dequantize", rounds=3)
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


def _ours(count: int, weight: torch.Tensor, scale: torch.Tensor, room: Callable[[], torch.Tensor]) -> Callable[[], object]:
    """Upcast with one Python thread a core, each with one torch thread and its part of the rows."""
    pools: list[ThreadPoolExecutor] = []
    step = -(-weight.shape[0] // (128 * count)) * 128

    def run() -> object:
        torch.set_num_threads(1)
        out = room()
        if count == 1:
            return upcast_block_scaled(weight, scale, out)
        if not pools:
            pools.append(ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)))

        def part(begin: int) -> object:
            end = min(begin + step, weight.shape[0])
            return upcast_block_scaled(weight[begin:end], scale, out[begin:end], first_row=begin)

        return list(pools[0].map(part, range(0, weight.shape[0], step)))

    return run


def _theirs(weight: torch.Tensor, scale: torch.Tensor) -> object:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    return Fp8Dequantize(None)._dequantize_one(weight, scale, torch.bfloat16)


def _from_pretrained(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    return AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=FineGrainedFP8Config(dequantize=True, weight_block_size=(128, 128)), dtype=torch.bfloat16
    )

"""Kernels of a few lines, for tests of the emulator and of the primitives themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tensorhub_cuda.catalog import Kernel

from tests.kernels.emulator.emulator import Argument, Emulator, Options, build, product_sources


def build_small(source: str) -> Emulator:
    """Build kernels of this source, after the product's conversions."""
    conversions = {"e4m3.cuh": product_sources()["e4m3.cuh"]}
    with tempfile.TemporaryDirectory(prefix="tensorhub-emulator-") as folder:
        return Emulator(build(Path(folder), {**conversions, "small_kernels.cu": source}, optimize="-O0"))


def run_small(
    emulator: Emulator,
    name: str,
    args: Sequence[Argument],
    *,
    threads: int = 32,
    shared_bytes: int = 0,
    options: Options = Options(),  # noqa: B008 (frozen)
    seed: int = 0,
    blocks: int = 1,
) -> None:
    """Run one of them on a grid of one row."""
    small = Kernel(name, "quantize", (), threads, 1, 1, shared_bytes, 75, 255, False)
    emulator.launch(small, (blocks, 1), args, options=options, seed=seed)

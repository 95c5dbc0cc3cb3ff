"""The speed table: ratios in one interleaved run on this machine. Prints Markdown; asserts nothing.

make bench            everything, some minutes, 2 GB of disk for the time of the run
python benchmarks/bench.py --only warm cold
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from cpu_time import print_start
from interleaved import measure, table
from peers import verify_with_hub_metadata, verify_with_safe_open
from trees import break_last_scale, evict, write_llama

sys.path.insert(0, str(Path(__file__).parent.parent))
from tensorhub_contracts import inspect
from tests.support.geometries import deepseek_v3, h3_conditioner  # the generators that the tests use


def warm(scratch: Path) -> None:
    """Full verification of the DeepSeek-V3 geometry with its files in the page cache."""
    folder = scratch / "deepseek-v3"
    deepseek_v3(folder)
    candidates: dict[str, Callable[[], object]] = {
        "tensorhub inspect": lambda: inspect(folder).require(),
        "safe_open loop": lambda: verify_with_safe_open(folder),
        "hub client's metadata": lambda: verify_with_hub_metadata(folder),
        "headers read, not parsed": lambda: read_bytes_only(folder),
    }
    rows = measure(candidates, base="safe_open loop", rounds=9)
    print(table("DeepSeek-V3 geometry, warm: 91,991 tensors in 163 shards", rows, {"tensorhub inspect": 0.50}))
    hub = measure(
        {name: candidates[name] for name in ("tensorhub inspect", "hub client's metadata")}, base="hub client's metadata", rounds=7
    )
    print(table("The same, to the hub client", hub, {"tensorhub inspect": 0.35}))


def read_bytes_only(folder: Path) -> int:
    """Read 8 + length bytes of each shard: what any reader of headers must do."""
    total = 0
    for shard in folder.glob("*.safetensors"):
        with shard.open("rb", buffering=0) as file:
            total += len(file.read(int.from_bytes(file.read(8), "little")))
    return total


def cold(scratch: Path) -> None:
    """The same with its files dropped from the page cache before each sample, and the bytes that come from disk."""
    folder = scratch / "deepseek-v3"
    deepseek_v3(folder)
    candidates: dict[str, Callable[[], object]] = {
        "tensorhub inspect": lambda: inspect(folder).require(),
        "safe_open loop": lambda: verify_with_safe_open(folder),
    }
    rows = measure(candidates, base="safe_open loop", rounds=5, prepare=lambda: evict(folder))
    print(table("DeepSeek-V3 geometry, cold", rows, {"tensorhub inspect": 0.40}))
    llama = scratch / "llama-1.8gb"
    write_llama(llama)
    candidates = {
        "tensorhub inspect": lambda: inspect(llama).require(),
        "safe_open loop": lambda: verify_with_safe_open(llama),
    }
    rows = measure(candidates, base="safe_open loop", rounds=7, prepare=lambda: evict(llama))
    print(table("A 1.8 GB Llama, cold", rows, {"tensorhub inspect": 0.40}))
    print("| | read from disk, MB | goal |\n|---|---:|---:|")
    for name, candidate in candidates.items():
        candidate()
        evict(llama)
        before = _read_from_disk()
        candidate()
        print(f"| {name} | {(_read_from_disk() - before) / 1e6:.2f} | {'≤ 1' if 'tensorhub' in name else ''} |")
    print()


def _read_from_disk() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["read_bytes"])


def refusal(scratch: Path) -> None:
    """Refusing a malformed 1.8 GB tree, and how long transformers takes to raise on it."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder = scratch / "llama-1.8gb"
    write_llama(folder)
    break_last_scale(folder)

    def load() -> str:
        try:
            transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        except RuntimeError as error:
            return str(error)
        raise SystemExit("transformers loaded the malformed tree")

    def refuse() -> tuple[str, ...]:
        return inspect(folder).codes

    print(f"refused as {refuse()}\n")
    rows = measure({"tensorhub inspect": refuse, "transformers raises": load}, base="transformers raises", rounds=3)
    print(table("Refusing a malformed tree of 1.8 GB", rows, {"tensorhub inspect": 0.001}))


def start(scratch: Path) -> None:
    """The whole process, on a checkpoint of 27.6 GB, in CPU time; and to importing torch."""
    folder = scratch / "h3-conditioner"
    h3_conditioner(folder)
    tool = str(Path(sys.executable).with_name("tensorhub"))
    print_start(tool, str(folder))
    candidates: dict[str, Callable[[], object]] = {
        "tensorhub inspect": lambda: subprocess.run([tool, "inspect", str(folder)], stdout=subprocess.DEVNULL, check=True),
        "import torch": lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True),
    }
    rows = measure(candidates, base="import torch", rounds=7)
    print(table("The whole process, 27.6 GB, to importing torch", rows, {"tensorhub inspect": 0.10}))


def upcast(scratch: Path) -> None:
    """One weight."""
    from decoding import dequantize_one_weight  # torch, which the parts above do without

    dequantize_one_weight()


def loading(scratch: Path) -> None:
    """A whole checkpoint."""
    from decoding import load_a_checkpoint

    load_a_checkpoint(scratch)


def resident(scratch: Path) -> None:
    """One projection with stored weights."""
    from decoding import project_with_stored_weights

    project_with_stored_weights()


def launch(scratch: Path) -> None:
    """One launch."""
    from launch_cost import print_launch_cost

    print_launch_cost(scratch)


PARTS = {
    "warm": warm,
    "cold": cold,
    "refusal": refusal,
    "start": start,
    "upcast": upcast,
    "loading": loading,
    "resident": resident,
    "launch": launch,
}


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="which parts to run")
    parts = parser.parse_args().only
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores\n")
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as scratch:
        for part in parts:
            PARTS[part](Path(scratch))


if __name__ == "__main__":
    main()

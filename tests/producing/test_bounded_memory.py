"""Memory is bounded by the largest tensor, whatever the checkpoint takes: measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.cli import environment
from tests.support.conversions import BLOCKWISE, CONTRACTS, done, noise, save

#: Bytes of the largest tensor as BF16, and how many of them a checkpoint has.
LARGEST, COUNT = 2048 * 4096 * 2, 5

#: What scratch memory, strips and allocators may take besides.
SLACK = 32_000_000

_MEASURE = """
import json, os, pathlib, sys
import torch
from tensorhub_decoders.converting import convert, decoded_values, fp8_quantization
from tensorhub_contracts.commands import tensorhub

def memory(what):  # not ru_maxrss, which a process inherits from the one that started it
    return int(pathlib.Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0]) * 1024

torch.set_num_threads(1)  # threads do not survive a fork
for name, arguments in json.loads(sys.argv[1]).items():
    child = os.fork()  # what one run leaves to the allocator is not there for the next
    if not child:
        for small in json.loads(sys.argv[2]):  # what libraries take once
            tensorhub.main([each.replace("NAME", name) for each in small], prog_name="tensorhub", standalone_mode=False)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        tensorhub.main(arguments, prog_name="tensorhub", standalone_mode=False)
        print(json.dumps({"name": name, "grown": memory("VmHWM") - before}), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """By how many bytes the peak of a process grows in each conversion."""
    folder = tmp_path_factory.mktemp("memory")
    save(folder / "small", {"a.weight": noise(256, 1024), "b": noise(9)}, config={})
    save(folder / "large", {f"{number}.weight": noise(2048, 4096) for number in range(COUNT)}, config={})
    done("produce", folder / "large", folder / "fp8", "--to", BLOCKWISE)
    save(folder / "pipeline" / "small", {"a.weight": noise(256, 1024), "b": noise(9)}, config={})
    (folder / "large").rename(folder / "pipeline" / "large")
    (folder / "large").symlink_to(folder / "pipeline" / "large")
    (folder / "pipeline" / "model_index.json").write_text(json.dumps({key: ["diffusers", "Model"] for key in ("small", "large")}))
    large, fp8 = str(folder / "large"), str(folder / "fp8")
    runs = {
        **{contract: ["produce", large, f"{folder}/{contract}", "--to", contract] for contract in CONTRACTS},
        "copy": ["produce", large, f"{folder}/copied", "--to", BLOCKWISE, "--only", "0.weight"],
        "decode": ["decode", fp8, f"{folder}/dense", "--to", "plain.f32@1"],
        "component": ["produce", f"{folder}/pipeline", f"{folder}/other", "--to", BLOCKWISE, "--component", "small"],
    }
    small = [
        ["produce", f"{folder}/small", f"{folder}/NAME-a", "--to", BLOCKWISE],
        ["decode", f"{folder}/NAME-a", f"{folder}/NAME-b", "--to", "plain.f32@1"],
    ]
    command = [sys.executable, "-c", _MEASURE, json.dumps(runs), json.dumps(small)]
    # Tensors of 32 MB and more are always given back at once; here, so that a small test says as much, are those of 1 MB.
    env = environment({"MALLOC_MMAP_THRESHOLD_": "1000000"})
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert process.returncode == 0, process.stderr[-2000:]
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"name"')]
    found = {line["name"]: line["grown"] for line in lines}
    print({name: f"{size / 1e6:.0f} MB" for name, size in found.items()})
    return found


@pytest.mark.parametrize("contract", CONTRACTS)
def test_producing_takes_a_tensor_its_codes_and_a_strip(grown: dict[str, int], contract: str) -> None:
    assert LARGEST < grown[contract] < 1.5 * LARGEST + SLACK < COUNT * LARGEST


def test_copying_takes_a_tensor_at_most(grown: dict[str, int]) -> None:
    assert grown["copy"] < 1.5 * LARGEST + SLACK


def test_copying_another_component_takes_a_piece_of_it(grown: dict[str, int]) -> None:
    assert grown["component"] < SLACK < COUNT * LARGEST


def test_decoding_takes_codes_a_dense_tensor_and_a_strip(grown: dict[str, int]) -> None:
    assert LARGEST < grown["decode"] < 2.5 * LARGEST + SLACK < COUNT * 2 * LARGEST

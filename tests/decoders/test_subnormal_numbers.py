"""Numbers below the smallest normal one stay what they are, in a process that computes with `torch.set_flush_denormal(True)`.

Each case runs in a process of its own, whose numbers are compared bit for bit with those worked out here, in NumPy.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.trees import fp8_config

#: The last weight takes two strips, the others one.
SHAPES = {"a": (256, 144), "b": (64, 64), "c": (1280, 1024)}

#: A scale that is subnormal itself: most products with it are, and some are not.
SCALE = 2.0**-130 * 1.5

PRELUDE = """
import hashlib, json, os, sys
import torch
how, workers, folder = sys.argv[1:4]
if workers == "1":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_num_threads(int(workers))

def flushes():
    return float(torch.tensor(2.0**-126) * 0.5) == 0.0

if how != "off":
    torch.set_flush_denormal(True)
    torch.full((1 << 20,), 2.0**-126) * 0.5  # torch starts its threads, which keep the mode
if how == "left":
    torch.set_flush_denormal(False)
before = flushes()
assert before is (how == "on")

def digest(tensor):
    return hashlib.sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()

def refused(function, *arguments, **words):
    from tensorhub_contracts import Refusal
    try:
        function(*arguments, **words)
    except Refusal:
        return True
    return False
"""

LOADS = """
from tensorhub_contracts import load
found = {}
for dtype in ("F32", "BF16"):
    loaded = load(folder, dtype=dtype, resident=False, lane="fp8-w8a32" if dtype == "F32" else "fp8-w8a16").weights
    found |= {f"{dtype} {name}": digest(tensor) for name, tensor in loaded.items()}
    assert flushes() is before
assert refused(load, folder, dtype="F32", resident=False, lane="fp8-w8a16"), "the control: it raises"
assert flushes() is before
print(json.dumps(found))
"""

RESIDENT = """
from tensorhub_contracts import load
units = load(folder, dtype="F32", resident=True, lane="fp8-w8a32").weights
found = {}
for name, unit in units.items():
    found[f"F32 {name}"] = digest(unit(torch.eye(unit.in_features)).t())
    assert flushes() is before
    try:
        unit(torch.eye(unit.in_features, dtype=torch.float64))
    except ValueError:
        assert flushes() is before
    else:
        raise AssertionError("the control: it raises")
print(json.dumps(found))
"""

CONVERSIONS = """
from pathlib import Path
from tensorhub_contracts.commands import tensorhub

def run(*arguments):
    code = tensorhub(list(map(str, arguments)), standalone_mode=False)
    assert not code, code
    assert flushes() is before

def files(folder):
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(Path(folder).glob("*.safetensors")))).hexdigest()

base = Path(folder) / f"{how}-{workers}"
found = {}
run("decode", folder, base / "plain", "--to", "plain.f32@1")
found["plain"] = files(base / "plain")
for contract in ("hf.fp8-blockwise@1", "cozy.fp8-rowwise@1"):
    run("produce", base / "plain", base / contract, "--to", contract)
    found[contract] = files(base / contract)
print(json.dumps(found), file=sys.__stdout__)
"""


def codes(name: str) -> np.ndarray[Any, Any]:
    """Return codes without NaN, and without zeros of either sign: a sum has no negative zero."""
    generator = np.random.default_rng(len(name) + sum(SHAPES[name]))
    low = generator.integers(1, 0x7F, SHAPES[name], dtype=np.uint8)
    return low | (generator.integers(0, 2, SHAPES[name], dtype=np.uint8) << 7)


def scales(name: str) -> np.ndarray[Any, Any]:
    rows, columns = (-(-size // 128) for size in SHAPES[name])
    return (SCALE * (1 + np.arange(rows * columns).reshape(rows, columns) % 7)).astype(np.float32)


def meant(name: str) -> np.ndarray[Any, Any]:
    """Return the weight in F32: the product in F64, which holds it exactly, rounded once."""
    rows, columns = SHAPES[name]
    spread = scales(name).astype(np.float64).repeat(128, axis=0).repeat(128, axis=1)[:rows, :columns]
    return (codes(name).view(ml_dtypes.float8_e4m3fn).astype(np.float64) * spread).astype(np.float32)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three blockwise units whose weights are mostly subnormal."""
    folder = tmp_path_factory.mktemp("subnormal")
    tensors = {f"{name}.weight": codes(name).view(ml_dtypes.float8_e4m3fn) for name in SHAPES}
    save_file({**tensors, **{f"{name}.weight_scale_inv": scales(name) for name in SHAPES}}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(fp8_config()), encoding="utf-8")
    subnormal = [float((np.abs(meant(name)) < 2.0**-126).mean()) for name in SHAPES]
    assert min(subnormal) > 0.2, subnormal
    return folder


def found(body: str, how: str, workers: int, folder: Path) -> dict[str, str]:
    """Run a script in a process of its own, and return what it printed."""
    command = [sys.executable, "-c", PRELUDE + body, how, str(workers), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return result


def digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


#: The mode of the thread that calls: never set; set; set, and set back when torch's own threads had begun with it.
MODES = ("off", "on", "left")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", MODES)
def test_upcast_weights_are_bit_for_bit_what_the_contract_says(tree: Path, how: str, workers: int) -> None:
    expected = {f"F32 {name}.weight": digest(meant(name)) for name in SHAPES}
    expected |= {f"BF16 {name}.weight": digest(meant(name).astype(ml_dtypes.bfloat16)) for name in SHAPES}
    assert found(LOADS, how, workers, tree) == expected


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", MODES)
def test_resident_projections_multiply_by_what_the_contract_says(tree: Path, how: str, workers: int) -> None:
    """The product with the unit matrix is the weight: every sum has one summand that is not zero."""
    assert found(RESIDENT, how, workers, tree) == {f"F32 {name}.weight": digest(meant(name)) for name in SHAPES}


@pytest.mark.parametrize("workers", [1, 3])
def test_conversions_write_the_same_bytes_in_every_mode(tree: Path, workers: int) -> None:
    expected = found(CONVERSIONS, "off", workers, tree)
    for how in ("on", "left"):
        assert found(CONVERSIONS, how, workers, tree) == expected, how

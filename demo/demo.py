"""The main job on real input: `make demo` makes checkpoints of published geometry and tiny real models and inspects each, produces
FP8 from an unquantized model, asks whether this environment satisfies it, and loads and runs it.

The large ones are sparse: real headers of their true apparent size, whose payload is a hole that takes no disk. Exits
with 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import geometries, tiny_models  # noqa: E402  # found from the repository's root

FOLDER = ROOT / "demo-checkpoints"
TENSORHUB = Path(sys.executable).with_name("tensorhub")


class Case(NamedTuple):
    """A checkpoint, how it is made, and the verdict that is expected: a contract, or the code and what it resembles."""

    name: str
    title: str
    make: Callable[[Path], object]
    contract: str
    refused: str = ""
    units: int = 0


def transposed_llama(folder: Path) -> None:
    """The tiny Llama with one scale grid transposed: transformers loads it, with wrong weights and no error."""
    from safetensors.torch import load_file, save_file

    tiny_models.fp8_llama(folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if name.endswith("_scale_inv") and tensor.shape[0] != tensor.shape[1])
    tensors[name] = tensors[name].t().contiguous()
    save_file(tensors, folder / "model.safetensors")


CASES = (
    Case("h3-conditioner", "a 27.6 GB text encoder", geometries.h3_conditioner, "hf.fp8-blockwise@1", units=357),
    Case("qwen3.8-27b-fp8", "Qwen3.8-27B-FP8's geometry", geometries.qwen38_27b, "hf.fp8-blockwise@1", units=407),
    Case("deepseek-v3", "DeepSeek-V3's geometry", geometries.deepseek_v3, "hf.fp8-blockwise@1", units=45_808),
    Case("tiny-llama-fp8", "a Llama, quantized", tiny_models.fp8_llama, "hf.fp8-blockwise@1"),
    Case("tiny-qwen3-moe-fp8", "a Qwen3-MoE, quantized", tiny_models.fp8_qwen3_moe, "hf.fp8-blockwise@1"),
    Case("tiny-llama-dense", "a Llama, dense", tiny_models.dense_llama, "plain.bf16@1"),
    Case(
        "tiny-llama-ct-block",
        "written by compressed-tensors, blocks",
        lambda folder: tiny_models.compressed_llama(folder, "FP8_BLOCK"),
        "compressed-tensors.fp8-block@1",
    ),
    Case(
        "tiny-llama-ct-channel",
        "written by compressed-tensors, channels",
        lambda folder: tiny_models.compressed_llama(folder, "FP8_DYNAMIC"),
        "compressed-tensors.fp8-channel@1",
    ),
    Case("tiny-llama-transposed", "one scale grid transposed", transposed_llama, "hf.fp8-blockwise@1", refused="scale-grid-transposed"),
)


def inspect(folder: Path, *arguments: str) -> tuple[str, int, float]:
    """Run the command line; return what it printed, its exit code and the seconds that the whole process took."""
    began = time.perf_counter()
    done = subprocess.run([TENSORHUB, "inspect", str(folder), *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout + done.stderr, done.returncode, time.perf_counter() - began


def verdict_of(report: dict[str, Any]) -> str:
    """Write a verdict in a few words."""
    (inspection,) = report["inspections"]
    if inspection["accepted"]:
        return str(inspection["contract"]["handle"])
    codes = ", ".join(dict.fromkeys(violation["code"] for violation in inspection["violations"]))
    return f"refused: {codes} ({inspection['nearest']})"


def expected(case: Case, report: dict[str, Any]) -> bool:
    """Whether the verdict is the one that the case expects."""
    (inspection,) = report["inspections"]
    codes = {violation["code"] for violation in inspection["violations"]}
    right = codes == ({case.refused} if case.refused else set()) and inspection["nearest"] == case.contract
    return right and (not case.units or len(inspection["units"]) == case.units)


def produce_and_ask() -> list[str]:
    """Produce both FP8 layouts from an unquantized model, and ask whether this environment satisfies one: as asked, and not as asked."""
    folder = FOLDER.relative_to(ROOT)
    unquantized, block, rows = f"{folder}/tiny-llama-dense", f"{folder}/produced-block", f"{folder}/produced-rows"
    artifact, lanes = f"{folder}/artifact.json", f"{folder}/lanes.json"
    kept = ("--skip", "model.embed_tokens.weight", "--skip", "lm_head.weight")
    satisfied = ("satisfies", artifact, "--image", lanes, "--accept", "hf.fp8-blockwise@1")
    questions = (
        (("produce", unquantized, block, "--to", "hf.fp8-blockwise@1", *kept), 0),
        (("produce", unquantized, rows, "--to", "cozy.fp8-rowwise@1", *kept), 0),
        (("artifact", block, "--output", f"json={artifact}"), 0),
        (("lanes", "--output", f"json={lanes}"), 0),
        (satisfied, 0),
        ((*satisfied, "--lane", "fp8-w8a8-dynamic", "--sm", "80"), 1),
    )
    wrong = []
    for arguments, expected_code in questions:
        done = subprocess.run([TENSORHUB, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        print(f"\n$ tensorhub {' '.join(arguments)}\n{done.stdout}{done.stderr}[exit code {done.returncode}]", flush=True)
        if done.returncode != expected_code:
            wrong.append(f"tensorhub {arguments[0]}")
    return wrong


def load_and_run() -> list[str]:
    """Load what was produced as whole models, run a forward, and print what the reports say."""
    import torch
    from tensorhub_decoders.transformers_models.loading import load_model

    tokens = torch.arange(3, 15)[None]
    logits = {}
    for name, resident in (
        ("tiny-llama-dense", False),
        ("produced-block", False),
        ("produced-block", True),
        ("produced-rows", False),
        ("produced-rows", True),
    ):
        model, report = load_model(FOLDER / name, dtype="BF16", resident=resident)
        with torch.no_grad():
            logits[name, resident] = model(tokens).logits.float()
        paths = ", ".join(f"{len(names)} weights by {path}" for path, names in report.load.compute_paths.items()) or "all as stored"
        print(f"load_model({name!r}, resident={resident}): {report.load.contract} in {report.load.lane}: {paths}")
        print(f"  {report.load.stored_bytes:,} bytes stored, {report.load.resident_bytes:,} in memory; decoder {report.load.decoder}")
    wrong = []
    unquantized = logits["tiny-llama-dense", False]
    for name in ("produced-block", "produced-rows"):
        if not torch.equal(logits[name, True], logits[name, False]):
            wrong.append(f"the logits of {name} with the stored bytes in memory")
        differs = float((logits[name, True] - unquantized).norm() / unquantized.norm())
        print(f"{name}: logits are {differs:.1%} from those of the unquantized model, which is what FP8 costs")
        if not 0 < differs < 0.2:
            wrong.append(f"the logits of {name}")
    return wrong


def main() -> None:
    """Make the checkpoints, show two reports in full, and a line for each of the others."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    rows = []
    wrong = []
    for case in CASES:
        folder = FOLDER / case.name
        print(f"making {case.name}: {case.title}", file=sys.stderr, flush=True)
        case.make(folder)
        text, code, seconds = inspect(folder.relative_to(ROOT))
        report = json.loads(inspect(folder, "--output", "json")[0])
        if case.name in ("h3-conditioner", "tiny-llama-transposed"):
            print(f"$ tensorhub inspect {folder.relative_to(ROOT)}\n{text}[exit code {code}]\n", flush=True)
        checkpoint = report["inspections"][0]["checkpoint"]
        mtp = sum(unit["multi_token_prediction"] for unit in report["inspections"][0]["units"])
        units = f"{len(report['inspections'][0]['units']):,}" + (f" ({mtp:,} MTP)" if mtp else "")
        size_in_bytes = checkpoint["file_bytes"]
        size = f"{size_in_bytes / 1e9:,.1f} GB" if size_in_bytes > 1e8 else f"{size_in_bytes / 1e6:,.1f} MB"
        rows.append((case.name, f"{checkpoint['tensors']:,}", size, units, f"{seconds:.2f} s", verdict_of(report)))
        if not expected(case, report) or code != bool(case.refused):
            wrong.append(case.name)
    heads = ("checkpoint", "tensors", "size", "units", "time", "verdict")
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    wrong += produce_and_ask()
    wrong += load_and_run()
    if wrong:
        sys.exit(f"not the expected verdict: {', '.join(wrong)}")
    print(f"\n{len(CASES)} checkpoints in {FOLDER.name}/, each with the expected verdict. Try `.venv/bin/tensorhub inspect` on your own.")


if __name__ == "__main__":
    main()

"""The receipt from end to end: its options, its sections in their order, and what the process exits with."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.kernels.oracle.fixture_files import FOLDER, MANIFEST, read_manifest, read_tensors
from tests.kernels.receipt.cases import read_cases
from tests.kernels.receipt.checks import Receipt
from tests.kernels.receipt.facts import gather_device, gather_facts
from tests.kernels.receipt.machine import Machine
from tests.kernels.receipt.oracle_checks import check_files, check_judge
from tests.kernels.receipt.receipt_files import write_receipt

SECTIONS = ("primitives", "kernels", "operator", "timings", "sanitizer")

#: Seconds after which no check is begun, so that all of it ends within six minutes.
DEADLINE = 270.0

_SANITIZER_SECONDS = 75.0


def make_receipt(arguments: Sequence[str] | None = None) -> int:
    """Make the receipt and return what the process exits with."""
    options = _options(arguments)
    begun = time.monotonic()
    receipt = Receipt(DEADLINE)
    manifest = read_manifest(options.manifest)
    gather_facts(receipt, manifest)
    machine, reason = _find_machine(host_memory=options.host_memory)
    if check_files(receipt, manifest, options.fixtures):
        check_judge(receipt, read_cases(manifest, options.fixtures))
        _run_sections(receipt, machine, reason, options)
    else:
        for section in SECTIONS:
            receipt.not_run(section, "the fixtures are not what the manifest says")
    on_gpu = machine is not None and machine.is_gpu
    receipt.facts["seconds"] = round(time.monotonic() - begun, 1)
    document = receipt.as_document(on_gpu=on_gpu)
    paths = write_receipt(options.output, document)
    counted = ", ".join(f"{count} {state}" for state, count in document["counts"].items())
    print(f"{document['verdict']}: {counted}; {paths[0]}, {paths[1]}")
    return receipt.exit_code(on_gpu=on_gpu)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Proves the kernels on this machine's GPU and writes a receipt.")
    parser.add_argument("--output", type=Path, default=Path("build/gpu-receipt"), help="folder of receipt.json and receipt.md")
    parser.add_argument("--quick", action="store_true", help="one shape in the timings, no peers, no compute-sanitizer")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="leave out the other sections; the receipt is then incomplete")
    parser.add_argument("--host-memory", action="store_true", help="launch on host memory, for a stand-in for the driver")
    parser.add_argument("--fixtures", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    parser.add_argument("--manifest", type=Path, default=MANIFEST, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _find_machine(*, host_memory: bool) -> tuple[Machine | None, str]:
    """Return the GPU, or the stand-in that was asked for, or none and why."""
    import torch
    from tensorhub_cuda.errors import KernelUnavailable
    from tensorhub_cuda.launch.loaded import device_sm

    if not host_memory and not torch.cuda.is_available():
        return None, f"no GPU: torch {torch.__version__} sees none"
    try:
        sm = device_sm(0)
    except KernelUnavailable as refusal:
        return None, f"no GPU: {refusal}"
    return Machine(torch.device("cpu" if host_memory else "cuda:0"), 0, sm), ""


def _run_sections(receipt: Receipt, machine: Machine | None, reason: str, options: argparse.Namespace) -> None:
    for section in SECTIONS:
        if machine is None:
            receipt.not_run(section, reason, required=section != "sanitizer")
        elif options.only and section not in options.only:
            receipt.not_run(section, f"--only {' '.join(options.only)}")
    if machine is None:
        return
    receipt.check("kernels are there", lambda: gather_device(receipt, machine))
    for section in options.only or SECTIONS:
        # What goes wrong between the checks of a section is a failure too, and the receipt is still written.
        run = partial(_run_section, section, receipt, machine, options)
        receipt.check(f"{section}: came to its end", run, required=section != "sanitizer")


def _run_section(section: str, receipt: Receipt, machine: Machine, options: argparse.Namespace) -> str:
    """Run a section and say how many checks it made. Its module is imported here: each needs torch, and some a GPU."""
    before = len(receipt.checks)
    cases = read_cases(read_manifest(options.manifest), options.fixtures)
    tables = read_tensors(options.fixtures / "conversions.safetensors")
    if section == "primitives":
        from tests.kernels.receipt.primitive_checks import check_primitives, run_on_driver

        check_primitives(receipt, machine, tables, run_on_driver(machine))
    elif section == "kernels":
        from tests.kernels.receipt.kernel_checks import check_kernels

        check_kernels(receipt, machine, cases, tables)
    elif section == "operator":
        from tests.kernels.receipt.operator_checks import check_operator
        from tests.kernels.receipt.torch_checks import check_operator_in_torch

        check_operator(receipt, machine, cases)
        check_operator_in_torch(receipt, machine, cases)
    elif section == "timings":
        from tests.kernels.receipt.timings import GOALS, check_timings

        receipt.facts["goals"] = GOALS
        check_timings(receipt, machine, quick=options.quick)
    else:
        _sanitize(receipt, machine, quick=options.quick)
    return f"{len(receipt.checks) - before} checks"


def _sanitize(receipt: Receipt, machine: Machine, *, quick: bool) -> None:
    from tests.kernels.receipt.sanitizer_checks import check_with_sanitizer

    if quick or not machine.is_gpu:
        receipt.not_run("compute-sanitizer", "--quick" if quick else "there is no GPU", required=False)
    else:
        check_with_sanitizer(receipt, _SANITIZER_SECONDS)

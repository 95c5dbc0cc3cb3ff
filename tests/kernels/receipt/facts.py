"""What a receipt says of where it was made: the device, the driver, NVRTC, torch, the kernels by digest, the commit."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from tensorhub_cuda.catalog import ABI, KERNELS, Kernel, read_source
from tensorhub_cuda.environment.look import find_environment
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.loaded import loaded_kernel

from tests.kernels.receipt.checks import Receipt, require
from tests.kernels.receipt.machine import Machine

_ROOT = Path(__file__).parents[3]


def gather_facts(receipt: Receipt, manifest: Mapping[str, Any]) -> None:
    """Put into the receipt what can be known without a device."""
    receipt.facts["environment"] = attrs.asdict(find_environment())
    receipt.facts["python"] = platform.python_version()
    receipt.facts["commit"] = _commit()
    receipt.facts["fixtures"] = {"generator": manifest["generator"], "sha256": {each["path"]: each["sha256"] for each in manifest["files"]}}
    receipt.facts["sources"] = {each.name: _digest(read_source(each)) for each in KERNELS}
    receipt.facts["abi"] = ABI


def gather_device(receipt: Receipt, machine: Machine) -> str:
    """Put the device into the receipt, and each kernel's machine code: its digest, who made it and where it was found.

    Returns which kernels are there. One whose minimum compute capability is above the device's is not; any other refusal is a failure.
    """
    device: dict[str, Any] = {"sm": machine.sm, "memory": str(machine.memory)}
    if machine.is_gpu:
        import torch

        properties = torch.cuda.get_device_properties(machine.memory)
        device |= {
            "name": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
        }
    receipt.facts["device"] = device
    kernels = receipt.facts["kernels"] = {each.name: _kernel_facts(each, machine) for each in KERNELS}
    refused = {name: facts for name, facts in kernels.items() if "decided_by" in facts}
    missing = [f"{name}: {facts['not_available']}" for name, facts in refused.items() if facts["decided_by"] != "floor"]
    require(not missing, "; ".join(missing))
    return ", ".join(name for name in kernels if name not in refused)


def _kernel_facts(each: Kernel, machine: Machine) -> dict[str, str]:
    try:
        loaded = loaded_kernel(each, machine.device_index)
    except KernelUnavailable as refusal:
        return {"compute_path": each.compute_path, "decided_by": refusal.decided_by, "not_available": str(refusal)}
    return {
        "compute_path": each.compute_path,
        "digest": loaded.digest,
        "origin": loaded.origin,
        "nvrtc": loaded.nvrtc_version,
        "path": loaded.path,
    }


def _commit() -> str:
    """Return the commit, with a plus where files were changed since, or "unknown" outside of a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-c", "safe.directory=*", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

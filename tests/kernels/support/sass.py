"""Reads machine code with the nvdisasm of NVIDIA's package: which instructions each kernel of a cubin has."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import lru_cache
from importlib import metadata
from pathlib import Path

_SECTION = re.compile(r"\s*\.section\s+\.text\.(?P<kernel>[^,\s]+),")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+ +)?(?P<opcode>[A-Z][A-Z0-9_.]*)")


@lru_cache(maxsize=1)
def nvdisasm() -> Path:
    """Return the program that the package nvidia-cuda-nvdisasm brings."""
    for file in metadata.files("nvidia-cuda-nvdisasm") or ():
        if file.name in ("nvdisasm", "nvdisasm.exe"):
            return Path(str(file.locate()))
    raise FileNotFoundError("nvidia-cuda-nvdisasm holds no nvdisasm")


def instructions(cubin: bytes, folder: Path) -> dict[str, Counter[str]]:
    """Return how often each instruction stands in each kernel: its whole name with modifiers, as HMMA.16816.F32.BF16.

    `folder` takes a file for the while.
    """
    file = folder / "disassembled.cubin"
    file.write_bytes(cubin)
    listing = subprocess.run([nvdisasm(), "-c", file], capture_output=True, text=True, check=True).stdout
    found: dict[str, Counter[str]] = {}
    kernel = ""
    for line in listing.splitlines():
        if section := _SECTION.match(line):
            kernel = section["kernel"]
            found[kernel] = Counter()
        elif kernel and (instruction := _INSTRUCTION.match(line)):
            found[kernel][instruction["opcode"]] += 1
    return found


def count(of: Counter[str], opcode: str) -> int:
    """Return how often an instruction stands there, whatever its modifiers."""
    return sum(number for name, number in of.items() if name.split(".")[0] == opcode)

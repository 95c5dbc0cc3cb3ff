"""The oracle's cases as they are stored, and their operands in the memory of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray

from tests.kernels.oracle.fixture_files import read_tensors
from tests.kernels.oracle.verdicts import Judgement, as_values, judge
from tests.kernels.receipt.machine import Machine

_read = lru_cache(maxsize=None)(read_tensors)


@attrs.frozen
class Case:
    """A case of the manifest (`facts`) and the tensors of its file."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def lane(self) -> str:
        return str(self.facts["lane"])

    @property
    def size(self) -> tuple[int, int, int]:
        """m, n and k."""
        return self.facts["m"], self.facts["n"], self.facts["k"]

    @property
    def is_aligned(self) -> bool:
        """Whether kernels that load 16 bytes at a time serve it: all of k, and the rows of weight and x."""
        x_bytes = self.facts["x_stride"] * (4 if self.lane == "w8a32" else 2)
        return (self.facts["k"] | self.facts["weight_stride"] | x_bytes) % 16 == 0

    def judge(self, answer: NDArray[Any]) -> Judgement:
        """Judge an answer [m, n], F32 or the 16 bits of BF16."""
        return judge(self.lane, answer, self.tensors[f"{self.lane}.expected"], self.tensors.get(f"{self.lane}.magnitude"))

    def known_bad(self) -> Mapping[str, NDArray[Any]]:
        """Return the wrong answers by the name of their mistake."""
        return {name: self.tensors[f"{self.lane}.wrong.{name}"] for name in self.facts["known_bad"]}


@attrs.frozen
class CaseOperands:
    """Tensors of a case: weight [n, k] and x [m, k] as views of padded rows, scale F32, scale_rows and bias or None."""

    x: torch.Tensor
    weight: torch.Tensor
    scale: torch.Tensor
    scale_rows: torch.Tensor | None
    bias: torch.Tensor | None
    compute: str
    grid: str

    def arguments(self) -> tuple[Any, ...]:
        """Return them in the operator's order."""
        return (self.x, self.weight, self.scale, self.scale_rows, self.bias, self.compute, self.grid)


def read_cases(manifest: Mapping[str, Any], folder: Path) -> list[Case]:
    """Return all cases; files are read once."""
    return [Case(facts, _read(folder / facts["file"])) for facts in manifest["cases"]]


def operands_of(case: Case, machine: Machine) -> CaseOperands:
    """Put a case into a machine's memory. BF16 scales are widened to F32, exactly, as loading a checkpoint does."""
    stored = case.tensors
    _, _, k = case.size
    precision = "f32" if case.lane == "w8a32" else "bf16"

    def optional(name: str) -> torch.Tensor | None:
        return machine.put(stored[name]) if name in stored else None

    return CaseOperands(
        x=machine.put(stored[f"x_{precision}"])[:, :k],
        weight=machine.put(stored["weight"])[:, :k],
        scale=machine.put(np.ascontiguousarray(as_values(stored["scale"]))),
        scale_rows=optional("scale_rows"),
        bias=optional(f"bias_{precision}"),
        compute=case.lane,
        grid=case.facts["grid"],
    )

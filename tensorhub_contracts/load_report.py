"""What a load reports: which checkpoint, which decoder and lane, what computes with each weight, and the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.verdict import RejectedLane


class UnsupportedLane(msgspec.Struct, frozen=True):
    """A lane that was asked for and is not supported here, with everything that says so."""

    lane: str
    violations: tuple[Violation, ...]


class LoadReport(msgspec.Struct, frozen=True):
    """What was loaded, by whom, and how.

    `lanes_asked` is empty if any would do; `unsupported` are those of them that came first and are not supported here, with
    why; `rejected` are the lanes of the image that were passed over, with who decided. `compute_paths` maps what computes to
    the weights that it computes with, as the decoder reports them; tensors that are as they are stored are in none.
    `stored_bytes` is what the checkpoint's tensors take in its files, `resident_bytes` what the loaded ones take in memory.
    `resident` says whether weights keep their stored form.
    """

    path: str
    component: str
    headers_digest: str
    contract: str
    digest: str
    lanes_asked: tuple[str, ...]
    unsupported: tuple[UnsupportedLane, ...]
    lane: str
    decoder: str
    distribution: str
    version: str
    rejected: tuple[RejectedLane, ...]
    device: str
    dtype: str
    resident: bool
    compute_paths: Mapping[str, tuple[str, ...]]
    stored_bytes: int
    resident_bytes: int


class LoadedWeights(msgspec.Struct, frozen=True):
    """The tensors of a checkpoint by name, and the report of how they came to be."""

    weights: Mapping[str, Any]
    report: LoadReport

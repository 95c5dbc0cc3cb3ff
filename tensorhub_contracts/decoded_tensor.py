"""What a decoder yields: a tensor under its name, and what computed it."""

from __future__ import annotations

from typing import Any, NamedTuple


class DecodedTensor(NamedTuple):
    """One tensor of a decoded checkpoint, or what computes with it as it is stored.

    `compute_path` names what computed it, `cpu.upcast` or `cuda.nvrtc.…`, or each of those that may compute with it, by
    how many rows of activations a call has. It is empty for a tensor that is as it is stored. A decoder may yield plain
    tuples of the three.
    """

    name: str
    tensor: Any
    compute_path: str | tuple[str, ...]

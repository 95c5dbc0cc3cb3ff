"""Prefixes of tensor names, for tables: everything before the first number, and whether a unit predicts further tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BEFORE_NUMBER = re.compile(r"(.+?)\.[0-9]+(?:\.|\Z)", re.DOTALL)


def prefix_of(name: str) -> str:
    """Return the dotted name up to its first number, or without its last segment if it has none.

    `model.layers.3.mlp.down_proj.weight` gives `model.layers`; `lm_head.weight` gives `lm_head`.
    """
    matched = _BEFORE_NUMBER.match(name)
    return matched[1] if matched else name.rpartition(".")[0] or name


def layer_count(config: Mapping[str, Any]) -> int | None:
    """Return `num_hidden_layers` of `config.json`, at the top level or under `text_config`."""
    for place in (config, config.get("text_config")):
        if isinstance(place, Mapping) and type(count := place.get("num_hidden_layers")) is int:
            return count
    return None


def is_multi_token_prediction(name: str, layers: int | None) -> bool:
    """Whether a tensor belongs to a multi-token prediction module (MTP).

    Three spellings are known: `mtp.*`, `model.mtp.*`, and DeepSeek's `model.layers.<N>` for N from `layers` on.
    """
    segments = name.split(".")
    if "mtp" in segments[:-1]:
        return True
    if layers is None or "layers" not in segments[:-2]:
        return False
    number = segments[segments.index("layers") + 1]
    return number.isdigit() and int(number) >= layers

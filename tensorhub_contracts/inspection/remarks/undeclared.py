"""Unquantized matrices that no list names: which of them are worth a line, and which no producer converts anyway.

Producers convert linear layers. Embeddings and output heads are none, or are left out by every producer's default, and so is
the router of experts: no list has to name them, and official releases do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.inspection.declared.exclusions import ExclusionReport
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups

_HEADS: Final = ("lm_head",)
_TABLES: Final = ("wte", "wpe")
_ROUTERS: Final = ("gate", "router")
_EXPERT_COUNTS: Final = ("num_experts", "n_routed_experts", "num_local_experts")


def undeclared_matrices(report: ExclusionReport, checkpoint: Checkpoint, groups: TensorGroups) -> tuple[str, ...]:
    """Return the unquantized matrices that a reader of the lists would have expected to be quantized.

    None if a pattern was not evaluated, since it may cover them, or if the declaration names what is quantized and not what
    is left out.
    """
    if report.not_evaluated or not _every_linear_layer(checkpoint):
        return ()
    rows = set(_values(checkpoint.config, ("vocab_size",)))
    experts = set(_values(checkpoint.config, _EXPERT_COUNTS))
    return tuple(name for name in report.unlisted if not _never_converted(name, groups.unquantized[name].shape, rows, experts))


def tied_heads(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entries that name an output head which a configuration ties to the embedding: there is no tensor for them."""
    tied = any(place.get("tie_word_embeddings") is True for place in _places(config))
    return _HEADS if tied else ()


def _never_converted(name: str, shape: tuple[int, ...], rows: set[int], experts: set[int]) -> bool:
    """Whether a matrix is a bias, an embedding, an output head or a router, by its name or by its number of rows."""
    if name.endswith((".bias", "_bias")):  # of stacked experts: one row for each
        return True
    module = name.rpartition(".")[0] or name
    last = module.rpartition(".")[2]
    if "embed" in last or last in _TABLES or last in _HEADS:
        return True
    return shape[0] in rows or (last in _ROUTERS and shape[0] in experts)


def _every_linear_layer(checkpoint: Checkpoint) -> bool:
    """Whether no declaration of compressed-tensors aims at named modules only."""
    for source in checkpoint.declarations:
        groups = source.content.get("config_groups")
        targets = [group.get("targets") for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []
        named = [each for each in targets if isinstance(each, list)]
        if named and not any("Linear" in each for each in named):
            return False
    return True


def _values(config: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[int]:
    for place in _places(config):
        for key in keys:
            if type(value := place.get(key)) is int:
                yield value


def _places(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The configuration, and what it says of the language model in it."""
    yield config
    if isinstance(text := config.get("text_config"), Mapping):
        yield text

"""What `config.json` says of a converted checkpoint: the declaration that its contract asks for, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.inspection.declared.declaration_words import MODULE_LISTS
from tensorhub_contracts.registry.contract import Contract

#: The module list that this distribution writes.
_LIST: Final = "modules_to_not_convert"

#: The keys of a declaration in the order in which releases write them; others follow.
_KEYS: Final = ("quant_method", "fmt", "activation_scheme", "weight_block_size")

#: A tensor of experts, one by one (`experts.3.up_proj.weight`) or stacked (`experts.down_proj`).
_EXPERTS: Final = re.compile(r"(.+\.experts)\.")


def declare(
    contract: Contract, config: Mapping[str, Any], unquantized: Mapping[str, Geometry], units: Collection[str], converted: Collection[str]
) -> dict[str, Any]:
    """Return a configuration that declares a contract whose declaration stands in `quantization_config`.

    `unquantized` are the tensors that stay as they are, `units` the weights that are quantized in the end, and `converted` those of
    them that have just become so. A declaration that is there already stays, in its place, but for its lists of modules:
    entries that cover a converted weight are replaced by the modules that they covered and that stay unquantized.
    """
    modules = unquantized_modules(config, unquantized, units)
    if not any(isinstance(place.get("quantization_config"), Mapping) for place in _places(config)):
        return {**config, "quantization_config": {**_declaration(contract), _LIST: modules}}
    now_units = [_module(name) for name in converted]

    def with_lists(declared: Mapping[str, Any]) -> dict[str, Any]:
        entries = dict.fromkeys(entry for key in MODULE_LISTS for entry in declared.get(key) or ())
        kept = [entry for entry in entries if not any(_covers(entry, module) for module in now_units)]
        missing = [module for module in modules if not any(_covers(entry, module) for entry in kept)]
        return {**{key: value for key, value in declared.items() if key not in MODULE_LISTS}, _LIST: kept + missing}

    return _replaced(config, with_lists)


def _declaration(contract: Contract) -> dict[str, Any]:
    """Return what a contract asks of a declaration, key by key; of several values that will do, the first."""
    (declares,) = [each for each in contract.declares if each.source == "quantization_config"]
    asked = {each.key: each.any_of[0] if each.any_of else each.equals for each in declares.require if not each.null}
    ordered = sorted(asked, key=lambda key: _KEYS.index(key) if key in _KEYS else len(_KEYS))
    return {key: list(value) if isinstance(value := asked[key], tuple) else value for key in ordered}


def unquantized_modules(config: Mapping[str, Any], unquantized: Mapping[str, Geometry], units: Collection[str]) -> list[str]:
    """Return the modules that a loader has to leave alone: it makes every linear layer that is not listed a quantized one.

    These are the matrices `*.weight` of rank 2; the module that holds experts, if none of them is quantized; and an
    output head that has no tensor of its own because it shares the embedding's.
    """
    found: dict[str, None] = {}
    for name, geometry in unquantized.items():
        experts = _EXPERTS.match(name)
        if experts and len(geometry.shape) in (2, 3) and not any(unit.startswith(f"{experts[1]}.") for unit in units):
            found[experts[1]] = None
        if name.endswith(".weight") and len(geometry.shape) == 2:
            found[_module(name)] = None
    text_config = config.get("text_config")
    places = (config, text_config if isinstance(text_config, Mapping) else {})
    predicts = any("vocab_size" in place for place in places)
    tied = all(place.get("tie_word_embeddings") is not False for place in places)
    if predicts and tied and not any(name.endswith("lm_head.weight") for name in (*unquantized, *units)):
        found["lm_head"] = None
    return sorted(found)


def undeclare(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without any quantization declaration."""
    return _replaced(config, lambda declared: None)


def _replaced(
    config: Mapping[str, Any], new: Callable[[Mapping[str, Any]], dict[str, Any] | None], *, inner: bool = False
) -> dict[str, Any]:
    """Replace the declaration, at the top and under `text_config`, by what `new` makes of it; None removes it."""
    changed: dict[str, Any] = {}
    for key, value in config.items():
        if key == "quantization_config" and isinstance(value, Mapping):
            declared = new(value)
            if declared is not None:
                changed[key] = declared
        elif key == "text_config" and isinstance(value, Mapping) and not inner:
            changed[key] = _replaced(value, new, inner=True)
        else:
            changed[key] = value
    return changed


def _places(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    text_config = config.get("text_config")
    return (config, text_config) if isinstance(text_config, Mapping) else (config,)


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _covers(entry: str, module: str) -> bool:
    """Whether an entry is a run of a module's whole segments; patterns are left to whoever wrote them."""
    return not entry.startswith("re:") and f".{entry.strip('.')}." in f".{module}."

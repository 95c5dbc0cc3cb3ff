"""Whole `transformers` models from any contract that a decoder here reads: unquantized, or with the stored bytes in their places.

The model's own quantizer is never asked: the configuration goes in without its declaration.
"""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tensorhub_contracts import LoadReport, Refusal, Violation, load
from tensorhub_decoders.devices import compute_capability
from tensorhub_decoders.exact_torch import exact_torch
from tensorhub_decoders.reading import torch_dtype
from tensorhub_decoders.resident.linear import ResidentModule
from tensorhub_decoders.transformers_models.placing import placeholders, put_resident_units
from tensorhub_decoders.transformers_models.saving import save_as_loaded

if TYPE_CHECKING:
    import torch


@attrs.frozen
class ModelReport:
    """How a model came to be: how its weights were loaded, and what became of them."""

    #: How the weights were loaded.
    load: LoadReport
    #: The model's class, `module.qualname`.
    model_class: str
    #: Tensors of the checkpoint that the model has no place for and the caller allowed to be left out.
    unused: tuple[str, ...]
    #: Scales of a key or value cache that the model has no place for: they scale no weight, and are left out.
    cache_scales: tuple[str, ...]
    #: Tensors that the model class itself declares to ignore.
    ignored: tuple[str, ...]
    #: Parameters that the model holds in another dtype than the checkpoint, and that dtype.
    cast: Mapping[str, str]


def load_model(
    path: str | Path,
    component: str = "",
    *,
    dtype: str,
    resident: bool,
    contract: str | None = None,
    model_class: type[Any] | None = None,
    lane: str | Sequence[str] | None = None,
    device: str = "cpu",
    unused: Sequence[str] = (),
) -> tuple[Any, ModelReport]:
    """Return a `transformers` model in evaluation mode with the weights of a checkpoint, and the report.

    `model_class` is by default the one that the configuration's `architectures` names. `dtype`, `resident`, `contract`,
    `lane` and `device` are those of `load`. `unused` are patterns (fnmatch) of tensors that may have no place in the model;
    scales of a key or value cache need none: where the model has no place for them they are left out, and reported.

    Raises `Refusal` for whatever `load` refuses; (`model-keys`) with every parameter that would be left as it was
    initialized, every tensor without a place, and every one of another shape; and (`resident-placement`) with every unit
    that the model needs as an ordinary tensor. Nothing is asked of a network.
    """
    capability = compute_capability(device)
    loaded = load(path, component, dtype=dtype, resident=resident, contract=contract, lane=lane, device=device, sm=capability)
    folder = Path(path) / component if component else Path(path)
    folder = folder if folder.is_dir() else folder.parent
    config, declared = _undeclared_config(folder)
    kind = model_class or _model_class(config, folder)
    with exact_torch():
        model, info = _built(kind, config, loaded.weights, torch_dtype(dtype))
    allowed = {name for name in info["unexpected_keys"] if any(fnmatch.fnmatchcase(name, pattern) for pattern in unused)}
    cache_scales = set(info["unexpected_keys"]).intersection(loaded.report.cache_scales) - allowed
    _require_all_placed(info, allowed | cache_scales, loaded.report)
    put_resident_units(model, loaded.weights)
    if any(isinstance(each, ResidentModule) for each in loaded.weights.values()):
        parts = _parts(model.config)  # fewer than in the file, if the model is the text model of another
        for place, declaration in enumerate(declared):
            if declaration is not None:  # what the model holds is still in that layout
                parts[min(place, len(parts) - 1)].quantization_config = declaration
        save_as_loaded(model, loaded.report.contract)
    model.eval().requires_grad_(False).to(device)
    held = dict(model.state_dict())
    cast = {
        name: str(held[name].dtype).removeprefix("torch.")
        for name, tensor in loaded.weights.items()
        if not isinstance(tensor, ResidentModule) and name in held and held[name].dtype != tensor.dtype
    }
    report = ModelReport(
        load=loaded.report,
        model_class=f"{kind.__module__}.{kind.__qualname__}",
        unused=tuple(sorted(allowed)),
        cache_scales=tuple(sorted(cache_scales)),
        ignored=tuple(sorted(_ignored(model, loaded.weights) - allowed)),
        cast=cast,
    )
    return model, report


def _built(kind: type[Any], config: Any, weights: Mapping[str, Any], dtype: torch.dtype) -> tuple[Any, Mapping[str, Any]]:
    """Return a model with ordinary weights, placeholders for resident ones, and what its loader says."""
    refused: list[Violation] = []
    # The loader may take tensors out of what it is given: a mapping of its own. Experts are multiplied one by one, since
    # grouped multiplications take an ordinary stack of matrices.
    given = placeholders(weights, dtype, refused)
    resident = any(isinstance(each, ResidentModule) for each in weights.values())
    eager = {"experts_implementation": "eager"} if resident and kind._can_set_experts_implementation() else {}
    try:
        built: tuple[Any, Mapping[str, Any]] = kind.from_pretrained(
            None, config=config, state_dict=given, dtype=dtype, output_loading_info=True, local_files_only=True, **eager
        )
    except Exception:
        if refused:  # the loader reports another error of its own for what was refused
            raise Refusal(refused) from None
        raise
    if refused:
        raise Refusal(refused)
    return built


def _undeclared_config(folder: Path) -> tuple[Any, list[Any]]:
    """Return the configuration of a model without what it declares of quantization, and that, part by part."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the library is imported: nothing here may ask a network
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    declared = [copy.deepcopy(getattr(part, "quantization_config", None)) for part in _parts(config)]
    for part, declaration in zip(_parts(config), declared, strict=True):
        if declaration is not None:
            del part.quantization_config
    return config, declared


def _parts(config: Any) -> list[Any]:
    """Return the configurations that may declare a layout: that of the model, and that of its text model if it has one."""
    return [config, *([config.text_config] if getattr(config, "text_config", None) is not None else [])]


def _model_class(config: Any, folder: Path) -> type[Any]:
    import transformers

    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    if len(names) != 1:
        found = f"architectures {config.architectures}"
        remedy = "Give the class as model_class."
        raise Refusal(
            [
                Violation(
                    code="model-class",
                    object=str(folder),
                    expected="one model class that transformers has, in config.json",
                    found=found,
                    remedy=remedy,
                )
            ]
        )
    kind: type[Any] = getattr(transformers, names[0])
    return kind


def _require_all_placed(info: Mapping[str, Any], allowed: set[str], report: LoadReport) -> None:
    """Refuse a model in which a parameter is missing, or a checkpoint of which a tensor is left over."""
    violations = [
        Violation(
            code="model-keys",
            object=name,
            expected="a tensor of the checkpoint",
            found="none: it would stay as it was initialized",
            remedy=_REMEDY,
        )
        for name in sorted(info["missing_keys"])
    ]
    violations += [
        Violation(
            code="model-keys", object=name, expected="a place in the model, or a pattern in `unused`", found="neither", remedy=_REMEDY
        )
        for name in sorted(set(info["unexpected_keys"]) - allowed)
    ]
    violations += [
        Violation(code="model-keys", object=str(each), expected="the shape of the model's parameter", found="another shape", remedy=_REMEDY)
        for each in sorted(info["mismatched_keys"], key=str)
    ]
    violations += [
        Violation(code="model-keys", object=report.path, expected="a loader without errors", found=str(each), remedy=_REMEDY)
        for each in info["error_msgs"]
    ]
    if violations:
        raise Refusal(violations, nearest=report.contract)


def _ignored(model: Any, weights: Mapping[str, Any]) -> set[str]:
    """Return the tensors that the model class ignores by its own patterns."""
    import re

    patterns = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_unexpected or ()]
    return {name for name in weights if any(pattern.search(name) for pattern in patterns)}


_REMEDY = "Use the class that wrote the checkpoint, or the checkpoint that belongs to the class."

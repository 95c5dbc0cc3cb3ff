"""Recognizes adapters: weights that change another model, and are none by themselves.

What writes them: PEFT (`….lora_A.weight`, beside `adapter_config.json`), kohya and LyCORIS (`lora_unet_….lora_down.weight` and a
network module in `__metadata__`), diffusers (`….lora.down.weight`, or PEFT's names). Ordinary models use the same words: RWKV-7 has
`w_lora.lora.0.weight`, DeepSeek `q_a_proj`, vocoders `alpha`. So only whole segments of names count, and only those that no layer
of a model is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.files import exists_or_dangles, read_json_file
from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.checkpoints.paths import folder_of, inside, is_folder
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import JsonFault, parse_json

_CONFIG: Final = "adapter_config.json"

#: A part of each name below: names without one are settled fast.
_PARTS: Final = ("lora", "hada_", "lokr_", "oft_", "ia3_", "vera_", "lycoris_")
# Patterns are compiled when they are first used, and kept by `re`: most checkpoints have no name to try.
_ADAPTER: Final = (
    r"(?:^|\.)(?:"
    r"lora_(?:A|B|down|up|mid|embedding_A|embedding_B|magnitude_vector)"
    r"|(?:\w*_)?lora\.(?:down|up)"
    r"|hada_(?:w1_a|w1_b|w2_a|w2_b|t1|t2)|lokr_(?:w1|w2|w1_a|w1_b|w2_a|w2_b|t2)"
    r"|oft_(?:R|r|blocks|diag)|boft_(?:R|s)|ia3_l|vera_(?:A|B|lambda_b|lambda_d)"
    r")(?:\.|\Z)"
    r"|^(?:lora_(?:unet|te|te1|te2|te3|transformer|prior_unet|prior_te)|lycoris)_"
)
#: Names that ordinary models have too: they say something where every tensor of a tree is of an adapter.
_ALSO: Final = r"(?:^|\.)(?:alpha|dora_scale|prompt_embeddings|diff|diff_b|w_norm|b_norm|bias|scalar|adaption_prompt|adaption_gate)\Z"
_ALONE: Final = r"(?:^|\.)(?:dora_scale|prompt_embeddings|adaption_prompt)\Z"
#: The tensors whose first dimension is the rank, and what comes before them.
_RANKED: Final = r"(?s:(.*?))\.?(?:lora_A|lora_down|lora_embedding_A|lora\.down)(?:\.[^.]+)?(?:\.weight)?\Z"
_INSIDE: Final = r"(?s:.*)\.lora_[AB]\.(\w+)\.weight\Z"

_WRAPPED: Final = "base_model.model."
_NETWORK_KEYS: Final = ("ss_network_module", "lora_adapter_metadata")
_BASE_KEYS: Final = ("ss_base_model_version", "ss_sd_model_name")
_SHOWN: Final = 200


def adapter_violation(checkpoint: Checkpoint, suspects: Iterable[str], *, on_disk: bool) -> Violation | None:
    """Return why a checkpoint is an adapter, or holds one beside the weights of a model; None if it is neither.

    `suspects` are the tensors that could be an adapter's: of 90,000 names a look at each takes a tenth of an inspection.
    Only one that lies on disk has a file beside it.
    """
    config, metadata = _adapter_config(checkpoint) if on_disk else None, _metadata(checkpoint)
    named = _adapter_tensors(list(suspects))
    alone = _all_of_adapters(checkpoint.shard_of, named) or _said_to_be_one(checkpoint, config, metadata)
    if alone:
        based = _base(config or {}, metadata)
        words = f"an adapter{f' of {based}' if based else ''}: {_describe(named or list(checkpoint.shard_of), checkpoint.tensors)}"
        remedy = "Point at the model that it adapts; an adapter is given to what runs that model."
    elif named and not _part_of_the_model(named, checkpoint):
        words = f"the weights of a model, and in them an adapter that is not merged: {_describe(named, checkpoint.tensors)}"
        remedy = "Merge the adapter where the checkpoint is made, or save the model without it."
    else:
        return None
    return Violation(code="adapter-not-a-model", object=checkpoint.path, expected="the weights of a model", found=words, remedy=remedy)


def _adapter_tensors(names: list[str]) -> list[str]:
    joined = "\n".join(names)
    if not any(part in joined for part in _PARTS):
        return []
    return [name for name in names if re.search(_ADAPTER, name)]


def _all_of_adapters(names: Iterable[str], named: list[str]) -> bool:
    """Whether every tensor has a name of adapters, and one of them a name that no model has.

    PEFT puts layers that were trained whole (`modules_to_save`) beside its own; a wrapped model has `base_layer` in its names.
    """
    if not named and not any(re.search(_ALONE, name) for name in islice(names, 4)):
        return False
    if all(name.startswith(_WRAPPED) and ".base_layer." not in name for name in names):
        return True
    known = frozenset(named)
    return all(name in known or re.search(_ALSO, name) for name in names)


def _said_to_be_one(checkpoint: Checkpoint, config: Mapping[str, Any] | None, metadata: Mapping[str, str]) -> bool:
    """Whether the header, the name of the file, or an `adapter_config.json` without a configuration of a model says so."""
    if any(metadata.get(key, "None") not in ("", "None") for key in _NETWORK_KEYS):
        return True
    if metadata.get("modelspec.architecture", "").endswith("/lora"):
        return True
    shard = next(iter(checkpoint.headers), "")
    return config is not None and (shard.startswith("adapter_model") or ("peft_type" in config and not checkpoint.config))


def _part_of_the_model(named: list[str], checkpoint: Checkpoint) -> bool:
    """Whether a model's own configuration states its adapters, as Phi-4-multimodal does.

    It ships `q_proj.base_layer.weight` with `q_proj.lora_A.vision.weight`, and `vision_lora` with a rank in `config.json`: its class
    is made so, and nothing is left to merge. The rank must be that of the tensors.
    """
    for name in named:
        matched = re.match(_INSIDE, name)
        stated = checkpoint.config.get(f"{matched[1]}_lora") if matched else None
        rank = stated.get("r") if isinstance(stated, dict) else None
        shape = checkpoint.tensors[name].shape
        if type(rank) is not int or len(shape) != 2 or shape[0 if ".lora_A." in name else 1] != rank:
            return False
    return True


def _describe(names: list[str], tensors: Mapping[str, Geometry]) -> str:
    """Write an adapter in words: `224 tensors such as x; LoRA of rank 16 on 112 modules`."""
    words = f"{len(names):,} tensor{'' if len(names) == 1 else 's'} such as {_bounded(names[0])}"
    ranked = [(matched[1], tensors[name].shape) for name in names if (matched := re.match(_RANKED, name)) and tensors[name].shape]
    if not ranked:
        return words
    ranks = sorted({shape[0] for _, shape in ranked})
    rank = f"rank {ranks[0]:,}" if len(ranks) == 1 else f"ranks {ranks[0]:,} to {ranks[-1]:,}"
    modules = len({stem for stem, _ in ranked})
    return f"{words}; LoRA of {rank} on {modules:,} module{'' if modules == 1 else 's'}"


def _base(config: Mapping[str, Any], metadata: Mapping[str, str]) -> str:
    """Return the name of the model that is adapted, as far as anything says it."""
    stated = config.get("base_model_name_or_path") or next((metadata[key] for key in _BASE_KEYS if metadata.get(key)), "")
    return _bounded(stated) if isinstance(stated, str) else ""


def _bounded(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


def _metadata(checkpoint: Checkpoint) -> Mapping[str, str]:
    """The metadata of a checkpoint of one file: an adapter has no shards."""
    headers = list(checkpoint.headers.values())
    return headers[0].metadata if len(headers) == 1 else {}


def _adapter_config(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the content of `adapter_config.json` beside a checkpoint, empty if it cannot be read, or None if there is none."""
    try:
        folder = inside(checkpoint.path, checkpoint.component) if is_folder(checkpoint.path) else folder_of(checkpoint.path)
        path = inside(folder, _CONFIG)
        if not exists_or_dangles(path):
            return None
        content = parse_json(read_json_file(path), allow_non_finite=True)
    except (OSError, Refusal, JsonFault):
        return {}
    return content if isinstance(content, dict) else {}

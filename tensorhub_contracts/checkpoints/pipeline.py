"""A pipeline root: a folder whose `model_index.json` names components, each a checkpoint in a sub-folder of its own."""

from __future__ import annotations

import os
from typing import Any

from tensorhub_contracts.checkpoints.files import exists_or_dangles, known_folder, list_folder, read_json_file
from tensorhub_contracts.checkpoints.paths import inside, is_folder, last_name, plain_path
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import Duplicates, JsonFault, parse_json

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".ckpt")
_MODEL_INDEX = "model_index.json"


def weight_components(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the components of a pipeline root that hold weights or ought to, sorted; empty if it is no pipeline root.

    A component whose folder is missing counts, and so does one with a `config.json` and no weights: inspecting it
    says so. A scheduler or a tokenizer has neither and does not count. Raises `Refusal` for a broken model index.
    """
    root = plain_path(path)
    if not exists_or_dangles(inside(root, _MODEL_INDEX)):
        return ()
    return tuple(name for name in _listed(root) if _ought_to_hold_weights(inside(root, name)))


def component_folder(path: str | os.PathLike[str], component: str) -> str:
    """Return the folder that holds the weights of `component`, or `path` itself if it is empty.

    Raises `Refusal` for a pipeline root without a component, a name that is not a plain folder name, and a component
    that is not there.
    """
    root = plain_path(path)
    if not component:
        names = weight_components(root)
        if names and not _holds_safetensors(root):
            found = f"a pipeline root with the components {', '.join(names)}"
            remedy = "Pick one with component=, or --component on the command line."
            raise Refusal(
                [Violation(code="component-required", object=root, expected="one component of a pipeline", found=found, remedy=remedy)]
            )
        return root
    known = (
        _listed(root)
        if exists_or_dangles(inside(root, _MODEL_INDEX))
        else tuple(name for name in list_folder(root) if known_folder(inside(root, name)))
    )
    # A component is one of these names or none: what leads elsewhere, as `..` and whatever has a slash, is never among them.
    if component not in known or not known_folder(inside(root, component)):
        found = f"the components {', '.join(known)}" if known else "no component"
        if component in known:
            found = "no such folder, although model_index.json lists it"
        remedy = "Name a component that the checkpoint has, or download the missing folder."
        raise Refusal(
            [Violation(code="component-unknown", object=component, expected=f"a component of {root}", found=found, remedy=remedy)]
        )
    return inside(root, component)


def _holds_safetensors(folder: str) -> bool:
    try:
        return any(name.endswith(".safetensors") for name in os.listdir(folder))
    except OSError:  # a folder that may be entered and not listed
        return False


def _listed(root: str) -> tuple[str, ...]:
    """The components that `model_index.json` lists: entries [library, class] that are not null."""
    where = inside(root, _MODEL_INDEX)
    try:
        index: Any = parse_json(read_json_file(where), allow_non_finite=True)
    except JsonFault as fault:
        raise _broken(where, str(fault)) from fault
    if not isinstance(index, dict):
        raise _broken(where, type(index).__name__)
    if isinstance(index, Duplicates):
        raise _broken(where, f"{', '.join(index.repeated)} more than once")
    return tuple(
        sorted(
            name
            for name, value in index.items()
            if not name.startswith("_")
            and isinstance(value, list)
            and len(value) == 2
            and value[0] is not None
            and name not in (".", "..")
            and not set(name) & {"/", "\\", "\0"}
        )
    )


def _ought_to_hold_weights(folder: str) -> bool:
    try:
        if not is_folder(folder):
            return True
        names = os.listdir(folder)
    except OSError:  # inspecting it says why nobody may look
        return True
    return "config.json" in names or any(name.endswith(_WEIGHTS) for name in names)


def _broken(where: str, found: str) -> Refusal:
    return Refusal(
        [
            Violation(
                code="config-json",
                object=last_name(where),
                expected="a JSON object that lists components",
                found=found,
                shard=where,
            )
        ]
    )

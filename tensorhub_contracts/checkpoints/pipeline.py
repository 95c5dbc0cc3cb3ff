"""A pipeline root: a folder whose `model_index.json` names components, each a checkpoint in a sub-folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorhub_contracts.checkpoints.files import exists_or_dangles, read_json_file
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import Duplicates, JsonFault, parse_json

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".ckpt")
_MODEL_INDEX = "model_index.json"


def weight_components(path: Path) -> tuple[str, ...]:
    """Return the components of a pipeline root that hold weights or ought to, sorted; empty if it is no pipeline root.

    A component whose folder is missing counts, and so does one with a `config.json` and no weights: inspecting it
    says so. A scheduler or a tokenizer has neither and does not count. Raises `Refusal` for a broken model index.
    """
    if not exists_or_dangles(path / _MODEL_INDEX):
        return ()
    return tuple(name for name in _listed(path) if _ought_to_hold_weights(path / name))


def component_folder(path: Path, component: str) -> Path:
    """Return the folder that holds the weights of `component`, or `path` itself if it is empty.

    Raises `Refusal` for a pipeline root without a component, a name that is not a plain folder name, and a component
    that is not there.
    """
    if not component:
        names = weight_components(path)
        if names and not any(path.glob("*.safetensors")):
            found = f"a pipeline root with the components {', '.join(names)}"
            remedy = "Pick one with component=, or --component on the command line."
            raise Refusal(
                [Violation(code="component-required", object=str(path), expected="one component of a pipeline", found=found, remedy=remedy)]
            )
        return path
    known = (
        _listed(path) if exists_or_dangles(path / _MODEL_INDEX) else tuple(sorted(each.name for each in path.iterdir() if each.is_dir()))
    )
    plain = component not in (".", "..") and not set(component) & {"/", "\\", "\0"}
    if not plain or component not in known or not (path / component).is_dir():
        found = f"the components {', '.join(known)}" if known else "no component"
        if plain and component in known:
            found = "no such folder, although model_index.json lists it"
        remedy = "Name a component that the checkpoint has, or download the missing folder."
        raise Refusal(
            [Violation(code="component-unknown", object=component, expected=f"a component of {path}", found=found, remedy=remedy)]
        )
    return path / component


def _listed(path: Path) -> tuple[str, ...]:
    """The components that `model_index.json` lists: entries [library, class] that are not null."""
    where = path / _MODEL_INDEX
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


def _ought_to_hold_weights(folder: Path) -> bool:
    if not folder.is_dir():
        return True
    names = [each.name for each in folder.iterdir()]
    return "config.json" in names or any(name.endswith(_WEIGHTS) for name in names)


def _broken(where: Path, found: str) -> Refusal:
    return Refusal(
        [
            Violation(
                code="config-json",
                object=where.name,
                expected="a JSON object that lists components",
                found=found,
                shard=str(where),
            )
        ]
    )

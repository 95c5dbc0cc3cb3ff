"""Saves a model that keeps its units as they are stored: what is written is proved to be in the contract that was loaded, or is not kept.

`transformers` writes whatever a model's state holds. Codes and scales without the declaration that belongs to them would be read as
something else, and so would a checkpoint that declares a unit which is no longer there.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tensorhub_contracts import Inspection, Refusal, Violation, inspect
from tensorhub_decoders.resident.linear import ResidentModule

#: What `save_pretrained` takes and a proof does not: the argument, what it must be, and why.
_FIXED = {
    "state_dict": (None, "a state of the caller's is not what was loaded"),
    "push_to_hub": (False, "nothing is published before it is proved: save it, and upload the folder"),
    "distributed_checkpoint": (False, "a distributed checkpoint is no safetensors checkpoint"),
    "safe_serialization": (True, "a pickle cannot be proved"),
    "variant": (None, "a variant is not what a folder is read as"),
}


@attrs.frozen
class Loaded:
    """What a model was loaded from, to which what is saved is held."""

    #: The contract.
    contract: str
    #: The names of its units' weights in the model's state.
    units: frozenset[str]


def save_as_loaded(model: Any, loaded_contract: str) -> None:
    """Make `model.save_pretrained` write a checkpoint in the contract that the model was loaded from, or refuse.

    The model's configuration has to hold the declaration. Copies and pickles of the model save so too.
    """
    loaded = Loaded(loaded_contract, frozenset(_unit_names(model)))
    model.save_pretrained = functools.partial(_save_pretrained, model, loaded)


def _save_pretrained(model: Any, loaded: Loaded, save_directory: str | Path, is_main_process: bool = True, **words: Any) -> None:
    """Save the model and its configuration to a folder that is new or empty, as `transformers` does with the same arguments.

    Raises `Refusal`, and the folder is as it was: (`save-unsupported`) for arguments under which nothing is proved, and for a model
    that no longer holds the units that were loaded; (`destination-exists`) for a folder that holds something; and whatever inspection
    says of what would be written, if it is not in the contract that was loaded. A process that is not the main one writes nothing.
    """
    destination = Path(save_directory).resolve()
    _require(destination, model, loaded, words)
    if not is_main_process:
        return
    plain = {name: value for name, value in words.items() if name not in _FIXED}
    with _unfinished(destination) as folder:
        type(model).save_pretrained(model, folder, **plain)
        _require_same(inspect(folder, contract=loaded.contract).require(), loaded, destination)
        folder.replace(destination)


def _require(destination: Path, model: Any, loaded: Loaded, words: Mapping[str, Any]) -> None:
    violations = [
        Violation(
            code="save-unsupported",
            object=name,
            expected=repr(value),
            found=type(words[name]).__name__ if name == "state_dict" else repr(words[name]),
            remedy=f"Leave it out: {why}.",
        )
        for name, (value, why) in _FIXED.items()
        if words.get(name, value) is not value
    ]
    held = frozenset(_unit_names(model))
    violations += [
        Violation(code="save-unsupported", object=name, expected="a unit that is kept as it is stored, as it was loaded", found="none")
        for name in sorted(loaded.units - held)
    ]
    violations += [
        Violation(
            code="save-unsupported", object=name, expected="no unit beside those that were loaded", found="one that is kept as it is stored"
        )
        for name in sorted(held - loaded.units)
    ]
    if violations:
        raise Refusal(violations)
    if destination.is_dir() and not any(destination.iterdir()):
        return
    if os.path.lexists(destination):
        raise Refusal(
            [
                Violation(
                    code="destination-exists",
                    object=str(destination),
                    expected="a folder that does not exist, or an empty one",
                    found="a folder that holds something" if destination.is_dir() else "something else",
                    remedy="Save into a new folder, and put other files, such as a tokenizer's, into it afterwards.",
                )
            ]
        )


def _require_same(written: Inspection, loaded: Loaded, destination: Path) -> None:
    """Refuse a checkpoint that lacks a unit of the model, or has another one."""
    names = frozenset(written.unit_tensors)
    if names != loaded.units:
        differing = ", ".join(sorted(names ^ loaded.units))
        raise Refusal(
            [
                Violation(
                    code="save-unsupported",
                    object=str(destination),
                    expected="each unit that was loaded, by the name that it has in the checkpoint",
                    found=f"others: {differing}",
                )
            ]
        )


@contextmanager
def _unfinished(destination: Path) -> Iterator[Path]:
    """Return a folder beside the destination, which is gone afterwards."""
    folder = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}")  # its own: with the rights that any new folder has
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unit_names(model: Any) -> Iterator[str]:
    for prefix, module in model.named_modules():
        if isinstance(module, ResidentModule):
            yield from (weight for weight, _, _ in module.state_names(f"{prefix}."))

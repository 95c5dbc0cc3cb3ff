"""As much of msgspec as `tensorhub_cuda` uses, on dataclasses, for a machine that has torch and cuda-core and no msgspec.

    install_if_missing()  # before the first import of tensorhub_cuda

For the receipt alone: nothing here checks types, which nothing on that machine needs.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any, dataclass_transform


@dataclass_transform()
class Struct:
    """Makes each subclass a dataclass, frozen if it asks for that."""

    def __init_subclass__(cls, frozen: bool = False, kw_only: bool = False, **_unused: Any) -> None:
        dataclasses.dataclass(frozen=frozen, kw_only=kw_only)(cls)


class DecodeError(Exception):
    """Text that is no JSON, or JSON that is not of the type asked for."""


def encode(value: Any) -> bytes:
    """Return JSON without spaces; structs as objects, tuples as arrays."""
    return json.dumps(value, default=dataclasses.asdict, separators=(",", ":"), ensure_ascii=False).encode()


def decode(content: bytes, type: Any = None) -> Any:  # noqa: A002  msgspec's name
    """Read JSON, into a struct of plain fields if `type` is one; arrays become tuples."""
    try:
        value = json.loads(content)
        return value if type is None else type(**{name: tuple(each) if isinstance(each, list) else each for name, each in value.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise DecodeError(str(error)) from error


def install_if_missing() -> bool:
    """Put this in msgspec's place where there is none, and say whether it was needed."""
    if importlib.util.find_spec("msgspec") is not None:
        return False
    module, json_module, structs_module = ModuleType("msgspec"), ModuleType("msgspec.json"), ModuleType("msgspec.structs")
    json_module.encode, json_module.decode = encode, decode  # type: ignore[attr-defined]  # modules made here
    structs_module.replace, structs_module.asdict = dataclasses.replace, dataclasses.asdict  # type: ignore[attr-defined]  # likewise
    for name, value in {"Struct": Struct, "DecodeError": DecodeError, "ValidationError": DecodeError, "field": dataclasses.field}.items():
        setattr(module, name, value)
    module.json, module.structs = json_module, structs_module  # type: ignore[attr-defined]  # likewise
    sys.modules |= {"msgspec": module, "msgspec.json": json_module, "msgspec.structs": structs_module}
    return True

"""Methods of the field that no contract describes: recognized by what is declared or by names, to say what a checkpoint is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from tensorhub_contracts.registry.contract import ForeignMethod

#: Keys whose value names a method, the one that says most first.
METHOD_KEYS: Final = ("quant_method", "method", "quant_algo", "quant_type", "format", "quantization", "quant_format", "mode")


def method_of_declaration(content: Mapping[str, Any], methods: Iterable[ForeignMethod]) -> ForeignMethod | None:
    """Return the method that a declaration names, or whose keys it has where it names none."""
    known = list(methods)
    named = [content[key] for key in METHOD_KEYS if isinstance(content.get(key), str)]
    for value in named:
        for method in known:
            if value.lower() in method.declared:
                return method
    return next((method for method in known if not named and method.keys and set(method.keys) <= content.keys()), None)


def methods_of_tensors(names: Collection[str], near: Iterable[str], methods: Iterable[ForeignMethod]) -> dict[str, ForeignMethod]:
    """Return, for tensors that nothing explains, the method that their names and those beside them are marks of.

    `names` are all names of the checkpoint, `near` the tensors to name. A method with more marks comes first.
    """
    wanted = list(near)
    if not wanted:
        return {}
    modules = {module for name in wanted for module in _modules(name)}
    leaves: dict[str, set[str]] = {}
    for name in names:
        for module in _modules(name):
            if module in modules:
                leaves.setdefault(module, set()).add(name[len(module) + 1 :] if module else name)
    ranked = sorted(((marks, method) for method in methods for marks in method.marks), key=lambda each: -len(each[0]))
    found: dict[str, ForeignMethod] = {}
    for name in wanted:
        for module in _modules(name):
            here = leaves.get(module, set())
            matched = next((method for marks, method in ranked if here.issuperset(marks)), None)
            if matched is not None:
                found[name] = matched
                break
    return found


def _modules(name: str) -> Iterator[str]:
    """Yield the module of a tensor, and the one above it: `x.weight.absmax` is of the module `x` too."""
    module = name.rpartition(".")[0]
    yield module
    if module:
        yield module.rpartition(".")[0]

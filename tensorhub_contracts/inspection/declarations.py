"""Judges what a checkpoint declares against what a contract requires; types are exact and nothing has a default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.registry.contract import Contract, Declares, Requirement
from tensorhub_contracts.registry.registry import Registry

_ABSENT: Final = object()
_FROM_EXPORT = "Take the configuration from the export that wrote the weights."


class DeclaredContracts(msgspec.Struct, frozen=True):
    """Which contracts the sources of a checkpoint declare.

    `handles` are those that every source declares; `addressed` are those whose method some source names, whatever
    else is wrong with it; `by_source` says for each source which it declares by itself.
    """

    handles: frozenset[str]
    addressed: frozenset[str]
    by_source: tuple[tuple[DeclarationSource, frozenset[str]], ...]

    @property
    def conflict(self) -> bool:
        """Whether two sources declare different layouts."""
        sources = self.by_source
        if len(sources) < 2:
            return False
        if not self.handles and any(handles for _, handles in sources):
            return True
        return any(
            first.kind == other.kind and _layout_keys(first.content) != _layout_keys(other.content)
            for place, (first, _) in enumerate(sources)
            for other, _ in sources[place + 1 :]
        )


def declared_contracts(sources: tuple[DeclarationSource, ...], registry: Registry) -> DeclaredContracts:
    """Return the contracts that all sources together declare: the intersection of what each allows."""
    by_source = tuple(
        (
            source,
            frozenset(
                contract.handle
                for contract in registry.contracts.values()
                if any(each.source == source.kind and not _faults(source, each) for each in contract.declares)
            ),
        )
        for source in sources
    )
    handles = frozenset.intersection(*(each for _, each in by_source)) if by_source else frozenset()
    addressed = frozenset(
        contract.handle
        for contract in registry.contracts.values()
        if any(each.source == source.kind and _names_method(source, each) for each in contract.declares for source in sources)
    )
    return DeclaredContracts(handles, addressed, by_source)


def _names_method(source: DeclarationSource, declares: Declares) -> bool:
    """Whether the source names the method that a contract is declared by, where the contract asks for one."""
    return not any(key == "quant_method" for _, key, _, _ in _faults(source, declares))


def declaration_violations(declared: DeclaredContracts, contract: Contract, registry: Registry) -> list[Violation]:
    """Return what is wrong with the declaration for a checkpoint that is to be in `contract`."""
    violations = []
    if declared.conflict:
        found = "; ".join(f"{source.where} declares {_brief(source.content)}" for source, _ in declared.by_source)
        remedy = f"Keep the declaration that belongs to the weights. {_FROM_EXPORT}"
        violations.append(
            Violation(
                code="declaration-conflict",
                object="quantization declaration",
                expected="one layout, however often declared",
                found=found,
                remedy=remedy,
            )
        )
    if not contract.declares:
        violations += (
            Violation(
                code="declaration-mismatch",
                object=source.where,
                expected=f"no quantization declared: {contract.handle} declares nothing",
                found=_brief(source.content),
                remedy=_FROM_EXPORT,
            )
            for source, _ in declared.by_source
        )
    elif not declared.by_source:
        wanted = " or ".join(dict.fromkeys(_describe(each) for each in contract.declares))
        remedy = "Add the configuration file that the producer wrote. A layout is never assumed from the bytes alone."
        violations.append(
            Violation(
                code="declaration-missing",
                object="quantization_config",
                expected=f"a declaration of {contract.handle}: {wanted}",
                found="none",
                remedy=remedy,
            )
        )
    elif contract.handle not in declared.handles:
        for source, handles in declared.by_source:
            if contract.handle not in handles:
                violations += _source_violations(source, contract, registry)
    return violations


def declared_block(sources: tuple[DeclarationSource, ...]) -> tuple[int, int] | None:
    """Return the `weight_block_size` that the sources agree on, if it is two positive whole numbers."""
    declared = [source.content.get("weight_block_size") for source in sources]
    blocks = {(block[0], block[1]) for block in declared if block is not None and _is_block(block)}
    return blocks.pop() if len(blocks) == 1 else None


def _source_violations(source: DeclarationSource, contract: Contract, registry: Registry) -> Iterator[Violation]:
    alternatives = [each for each in contract.declares if each.source == source.kind]
    if not alternatives:
        expected = f"a declaration of {contract.handle}, in {' or '.join(each.source for each in contract.declares)}"
        yield Violation(
            code="declaration-mismatch", object=source.where, expected=expected, found=_brief(source.content), remedy=_FROM_EXPORT
        )
        return
    faults = min((_faults(source, each) for each in alternatives), key=len)
    for code, key, expected, found in faults:
        if code == "declaration-mismatch" and key in ("quant_method", "quant_algo") and not _known(key, source, registry):
            code = "declaration-unknown"
        yield Violation(code=code, object=f"{source.where}: {key}", expected=expected, found=found, remedy=_FROM_EXPORT)


def _faults(source: DeclarationSource, declares: Declares) -> list[tuple[str, str, str, str]]:
    """Return (code, key, expected, found) for each requirement that the source does not meet."""
    faults = []
    for requirement in declares.require:
        for path, value in _values(source.content, requirement.key.split("."), ""):
            fault = _fault(requirement, value)
            if fault is not None:
                faults.append((fault[0], path, fault[1], fault[2]))
    return faults


def _fault(requirement: Requirement, value: Any) -> tuple[str, str, str] | None:
    if requirement.null:
        return None if value is None or value is _ABSENT else ("declaration-mismatch", "null", _show(value))
    if value is _ABSENT or value is None:
        wanted = _wanted(requirement)
        return (
            None if requirement.optional else ("declaration-incomplete", wanted, "null" if value is None else "nothing: the key is absent")
        )
    if isinstance(requirement.equals, tuple):
        if not _is_block(value):
            return ("declaration-invalid", f"two whole numbers above 0, namely {_wanted(requirement)}", _show(value))
        return None if tuple(value) == requirement.equals else ("declaration-mismatch", _wanted(requirement), _show(value))
    allowed = requirement.any_of or (requirement.equals,)
    if type(value) is not type(allowed[0]):
        return ("declaration-invalid", _wanted(requirement), _show(value))
    return None if value in allowed else ("declaration-mismatch", _wanted(requirement), _show(value))


def _values(content: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) for a dotted key; `*` yields one for each member, and one absent value if there is none."""
    if not steps:
        yield path, content
        return
    step, rest = steps[0], steps[1:]
    dot = "." if path else ""
    if step == "*":
        members = list(content.items()) if isinstance(content, Mapping) else []
        if not members:
            yield f"{path}{dot}*", _ABSENT
        for name, member in members:
            yield from _values(member, rest, f"{path}{dot}{name}")
    elif isinstance(content, Mapping) and step in content:
        yield from _values(content[step], rest, path + dot + step)
    else:
        yield path + dot + ".".join(steps), _ABSENT


def _is_block(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(type(each) is int and each > 0 for each in value)


def _known(key: str, source: DeclarationSource, registry: Registry) -> bool:
    """Whether some contract is declared by this value of `quant_method` or `quant_algo`."""
    return any(
        requirement.key == key and source.content.get(key) == requirement.equals
        for contract in registry.contracts.values()
        for each in contract.declares
        for requirement in each.require
    )


#: Keys that list modules: they are cross-checked with the bytes and declare no layout.
MODULE_LISTS: Final = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "modules_to_not_quantize")


def _layout_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in MODULE_LISTS and value is not None}


def _brief(content: Mapping[str, Any]) -> str:
    """Write the keys that declare a layout, short enough for a message."""
    shown = ", ".join(f"{key}={_show(value)}" for key, value in _layout_keys(content).items())
    return (shown if len(shown) <= 160 else shown[:157] + "...") or "nothing"


def _describe(declares: Declares) -> str:
    return ", ".join(f"{each.key}={_wanted(each)}" for each in declares.require if not each.optional)


def _wanted(requirement: Requirement) -> str:
    if requirement.null:
        return "null"
    if isinstance(requirement.equals, tuple):
        return write_shape(requirement.equals)
    return " or ".join(_show(each) for each in requirement.any_of or (requirement.equals,))


def _show(value: Any) -> str:
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() else ascii(value)
    elif type(value) is list and len(value) == 2 and _is_block(value) and value[0] == 1:
        text = f"{write_shape(value)} (row groups of {value[1]})"
    else:
        text = (
            {True: "true", False: "false", None: "null"}.get(value, ascii(value))
            if not isinstance(value, dict | list | int | float)
            else ascii(value)
        )
    return text if len(text) <= 80 else text[:77] + "..."

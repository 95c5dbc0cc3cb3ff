"""Judges what a checkpoint declares against what a contract requires; types are exact and nothing has a default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.declared.declaration_words import describe_declaration, layout_keys, write_value, write_wanted
from tensorhub_contracts.inspection.unexplained.methods import method_of_declaration
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import Contract, Declares, Requirement
from tensorhub_contracts.registry.registry import Registry

_ABSENT: Final = object()


@attrs.frozen(slots=False, repr=False)
class Fault(Readable):
    """A requirement that a declaration does not meet."""

    code: str
    #: The key, with dots where it steps into objects.
    key: str
    expected: str
    found: str


@attrs.frozen(slots=False, repr=False)
class SourceJudgement(Readable):
    """What one declaration says by itself."""

    source: DeclarationSource
    #: The least that is wrong if it is to declare a contract, by handle; contracts that this kind of source cannot declare have none.
    faults: Mapping[str, tuple[Fault, ...]]
    #: The contracts whose method it names, whatever else is wrong with it.
    addressed: frozenset[str]

    @property
    def declares(self) -> frozenset[str]:
        """The contracts that it declares."""
        return frozenset(handle for handle, faults in self.faults.items() if not faults)


@attrs.frozen(slots=False, repr=False)
class DeclaredContracts(Readable):
    """Which contracts the declarations of a checkpoint declare."""

    #: Those that every declaration declares.
    handles: frozenset[str]
    #: Those whose method some declaration names, whatever else is wrong with it.
    addressed: frozenset[str]
    by_source: tuple[SourceJudgement, ...]

    @property
    def conflict(self) -> bool:
        """Whether two sources declare different layouts."""
        judged = self.by_source
        if len(judged) < 2:
            return False
        if not self.handles and any(each.declares for each in judged):
            return True
        return any(
            first.source.kind == other.source.kind and layout_keys(first.source.content) != layout_keys(other.source.content)
            for place, first in enumerate(judged)
            for other in judged[place + 1 :]
        )


def declared_contracts(sources: tuple[DeclarationSource, ...], registry: Registry) -> DeclaredContracts:
    """Return the contracts that all sources together declare: the intersection of what each allows."""
    judged = tuple(_judge(source, registry) for source in sources)
    handles = frozenset.intersection(*(each.declares for each in judged)) if judged else frozenset()
    return DeclaredContracts(handles, frozenset().union(*(each.addressed for each in judged)), judged)


def declaration_violations(declared: DeclaredContracts, contract: Contract) -> list[Violation]:
    """Return what is wrong with the declaration for a checkpoint that is to be in `contract`."""
    violations = []
    if declared.conflict:
        found = "; ".join(f"{each.source.where} declares {describe_declaration(each.source.content)}" for each in declared.by_source)
        expected = "one layout, however often declared"
        violations.append(Violation(code="declaration-conflict", object="quantization declaration", expected=expected, found=found))
    if not contract.declares:
        expected = f"no quantization declared: {contract.handle} declares nothing"
        violations += (_mismatch(each.source, expected) for each in declared.by_source)
    else:
        for each in declared.by_source:
            if contract.handle not in each.declares:
                violations += _source_violations(each, contract)
    return violations


def is_block(value: Any) -> bool:
    """Whether a declared value is a block: two whole numbers above 0."""
    return type(value) is list and len(value) == 2 and all(type(each) is int and each > 0 for each in value)


def _judge(source: DeclarationSource, registry: Registry) -> SourceJudgement:
    faults: dict[str, tuple[Fault, ...]] = {}
    addressed = set()
    for contract in registry.contracts.values():
        alternatives = [tuple(_faults(source, each)) for each in contract.declares if each.source == source.kind]
        if alternatives:
            faults[contract.handle] = min(alternatives, key=len)
        if any(all(fault.key != "quant_method" for fault in each) for each in alternatives):
            addressed.add(contract.handle)
    return SourceJudgement(source, faults, frozenset(addressed))


def _source_violations(judged: SourceJudgement, contract: Contract) -> Iterator[Violation]:
    source = judged.source
    if contract.handle not in judged.faults:
        yield _mismatch(source, f"a declaration of {contract.handle}, in {' or '.join(each.source for each in contract.declares)}")
        return
    for fault in judged.faults[contract.handle]:
        yield Violation(code=fault.code, object=f"{source.where}: {fault.key}", expected=fault.expected, found=fault.found)


def _mismatch(source: DeclarationSource, expected: str) -> Violation:
    found = describe_declaration(source.content)
    return Violation(code="declaration-mismatch", object=source.where, expected=expected, found=found)


def _faults(source: DeclarationSource, declares: Declares) -> Iterator[Fault]:
    """Yield each requirement that the source does not meet."""
    for requirement in declares.require:
        for key, value in _values(source.content, requirement.key.split("."), ""):
            fault = _fault(requirement, key, value)
            if fault is not None:
                yield fault


def _fault(requirement: Requirement, key: str, value: Any) -> Fault | None:
    wanted = write_wanted(requirement)
    if requirement.null:
        return None if value is None or value is _ABSENT else Fault("declaration-mismatch", key, wanted, write_value(value))
    if requirement.keys:
        return _keys_fault(requirement, key, value)
    if value is _ABSENT or value is None:
        found = "null" if value is None else "nothing: the key is absent"
        if requirement.optional or (requirement.absent and value is _ABSENT):
            return None
        return Fault("declaration-incomplete", key, wanted, found)
    if isinstance(requirement.equals, tuple):
        if not is_block(value):
            return Fault("declaration-invalid", key, f"two whole numbers above 0, namely {wanted}", write_value(value))
        return None if tuple(value) == requirement.equals else Fault("declaration-mismatch", key, wanted, write_value(value))
    allowed = requirement.any_of or (requirement.equals,)
    if type(value) is not type(allowed[0]):
        return Fault("declaration-invalid", key, wanted, write_value(value))
    return None if value in allowed else Fault("declaration-mismatch", key, wanted, write_value(value))


def _keys_fault(requirement: Requirement, key: str, value: Any) -> Fault | None:
    """Return what is wrong with an object that may hold no key but those that are listed; one that is absent is not judged here."""
    if value is _ABSENT:
        return None
    wanted = write_wanted(requirement)
    if not isinstance(value, Mapping):
        return Fault("declaration-invalid", key, wanted, write_value(value))
    others = [name for name in value if name not in requirement.keys]
    return Fault("declaration-mismatch", key, wanted, write_value(", ".join(others))) if others else None


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


def unknown_key(source: DeclarationSource, registry: Registry) -> str | None:
    """Return the key by whose value a declaration names a method that no contract has, or None if the method is known.

    The key is empty if the place or what stands there can declare no contract at all.
    """
    named = [(key, known) for key in ("quant_method", "quant_algo") if (known := known_methods(source, key, registry))]
    said = [(key, known) for key, known in named if isinstance(source.content.get(key), str)]
    if said:
        return next((key for key, known in said if source.content[key] not in known), None)
    places = any(each.source == source.kind for contract in registry.contracts.values() for each in contract.declares)
    return "" if not places or method_of_declaration(source.content, registry.methods) else None


def known_methods(source: DeclarationSource, key: str, registry: Registry) -> list[str]:
    """Return the values of a key by which contracts are declared in a place like this one."""
    places = [each for contract in registry.contracts.values() for each in contract.declares if each.source == source.kind]
    wanted = [each for place in places for each in place.require if each.key == key]
    values = (value for each in wanted for value in (each.equals, *each.any_of) if isinstance(value, str))
    return list(dict.fromkeys(values))


def describe_declares(contract: Contract) -> str:
    """Write what declares a contract: the keys that a declaration must hold, with their values."""
    return " or ".join(dict.fromkeys(map(_describe, contract.declares)))


def _describe(declares: Declares) -> str:
    return ", ".join(f"{each.key}={write_wanted(each)}" for each in declares.require if not (each.optional or each.absent or each.keys))

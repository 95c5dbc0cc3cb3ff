"""`implements_contract`: a decoder says on the function itself which contract it reads, and in which lanes it runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import attrs

from tensorhub_contracts.errors import DeclarationError, Refusal
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.digests import contract_digest
from tensorhub_contracts.registry.names import parse_lane
from tensorhub_contracts.registry.registry import Registry, load_registry, resolve


class DecodedTensor(NamedTuple):
    """One tensor of a decoded checkpoint, or what computes with it as it is stored.

    `compute_path` names what computed it, `cpu.upcast` or `cuda.nvrtc.…`, or each of those that may compute with it, by
    how many rows of activations a call has. It is empty for a tensor that is as it is stored. A decoder may yield plain
    tuples of the three.
    """

    name: str
    tensor: Any
    compute_path: str | tuple[str, ...]


Decoder = TypeVar("Decoder", bound=Callable[..., Any])

#: The attribute that holds a function's declarations. functools.wraps copies it to a wrapper, as it does a docstring.
_ATTRIBUTE: Final = "__contract_decoders__"

_MODULE_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


@attrs.frozen
class DecoderDeclaration:
    """What a decoder declares about one contract."""

    contract: str
    #: That of the contract as the decoder knows it.
    digest: str
    #: Lane bodies.
    serves: tuple[str, ...]
    composes_lora: bool
    #: The modules that it imports when it runs; the derivation of lanes looks for them and imports none.
    requires: tuple[str, ...]
    why: str


#: What a decoder requires that says nothing: it computes with torch. One that does not says so, with ().
TORCH_ALONE: Final = ("torch",)

#: Why a decoder is there that does not say so, and has no docstring either.
NOT_STATED: Final = "not stated"


def implements_contract(
    *,
    contract: str | Contract,
    serves: tuple[str, ...],
    composes_lora: bool,
    requires: tuple[str, ...] = TORCH_ALONE,
    why: str = NOT_STATED,
) -> Callable[[Decoder], Decoder]:
    """Declare that a function or a method decodes a contract; may be stacked, once for each contract.

    `contract` is a handle of the registry that this distribution ships, or a `Contract` that the plugin owns (from
    `read_contracts`). `serves` are bodies of the lane table, without an execution, for each of which the contract
    states a floor. `composes_lora` says whether adapters may be composed with what the decoder returns: none of these
    three has a default. `requires` names the modules without which the decoder cannot run, by default torch alone;
    `torch.version.cuda` stands for a torch that is built with CUDA. `why` says in a sentence why the decoder is there, by
    default the first line of its docstring. Raises `DeclarationError` with everything that is wrong.
    """
    registry = load_registry()
    problems: list[str] = []
    facts = _contract(contract, registry, problems)
    problems += _argument_problems(serves, composes_lora, requires, why)
    if facts is not None and isinstance(serves, tuple):
        problems += (problem for body in serves if isinstance(body, str) for problem in _body_problems(body, facts, registry))
    if problems or facts is None:
        raise DeclarationError(problems)
    declaration = DecoderDeclaration(facts.handle, contract_digest(facts), serves, composes_lora, requires, why)

    def declare(decoder: Decoder) -> Decoder:
        function = _function(decoder)
        if function is None:
            raise DeclarationError([f"implements_contract: decorates a function or a method, not {decoder!r}"])
        own = attrs.evolve(declaration, why=_first_line(function)) if why == NOT_STATED else declaration
        held: tuple[DecoderDeclaration, ...] = vars(function).get(_ATTRIBUTE, ())
        for other in held:
            if other.contract == own.contract and other != own:
                raise DeclarationError([f"contract: {function.__qualname__} declares {other.contract} twice, and differently"])
        if own not in held:
            # Decorators run from the bottom up, and readers read from the top down.
            setattr(function, _ATTRIBUTE, (own, *held))
        return decoder

    return declare


def _first_line(function: Any) -> str:
    """Return what the docstring of a function begins with."""
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    return lines[0] if lines else NOT_STATED


def contract_decoders_of(decoder: Any) -> tuple[DecoderDeclaration, ...]:
    """Return what a function, a method or all methods of a class declare, in the order in which it is written."""
    if inspect.isclass(decoder):
        methods = (_function(inspect.getattr_static(decoder, name)) for name in _written_names(decoder))
        return tuple(dict.fromkeys(each for method in methods for each in contract_decoders_of(method)))
    function = _function(decoder)
    return vars(function).get(_ATTRIBUTE, ()) if function is not None else ()


def _written_names(kind: type) -> Iterator[str]:
    """Yield the names of a class's attributes, those of its bases first, each once, in the order in which they are written."""
    yield from dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))


def _function(decoder: Any) -> Any:
    """Return the plain function that holds the declarations, or None for what is no function."""
    if isinstance(decoder, staticmethod | classmethod) or inspect.ismethod(decoder):
        decoder = decoder.__func__
    return decoder if inspect.isfunction(decoder) else None


def _contract(contract: str | Contract, registry: Registry, problems: list[str]) -> Contract | None:
    if isinstance(contract, Contract):
        shipped = registry.contracts.get(contract.handle)
        if shipped is not None and contract != shipped:
            problems.append(f"contract: {contract.handle} is a shipped contract, and nothing may replace it")
        return contract
    if not isinstance(contract, str):
        problems.append(f"contract: a handle or a Contract, not {contract!r}")
        return None
    try:
        return resolve(contract, registry)
    except Refusal as refusal:
        problems += (f"contract: {violation}" for violation in refusal.violations)
        problems.append("contract: one that your plugin owns is given as the Contract itself, from read_contracts()")
        return None


def _argument_problems(serves: Any, composes_lora: Any, requires: Any, why: Any) -> Iterator[str]:
    for name, value in (("serves", serves), ("requires", requires)):
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            yield f"{name}: a tuple of strings, not {value!r}"
        elif len(set(value)) < len(value):
            yield f"{name}: {', '.join(sorted({each for each in value if value.count(each) > 1}))} is named more than once"
    if serves == ():
        yield "serves: at least one lane body"
    if isinstance(requires, tuple):
        yield from (
            f"requires: {each!r} is not the name of a module" for each in requires if isinstance(each, str) and not _MODULE_NAME.match(each)
        )
    if not isinstance(composes_lora, bool):
        yield f"composes_lora: True or False, not {composes_lora!r}"
    if not isinstance(why, str) or not why.strip():
        yield f"why: a sentence, not {why!r}"


def _body_problems(body: str, contract: Contract, registry: Registry) -> Iterator[str]:
    try:
        name = parse_lane(body)
    except Refusal as refusal:
        yield f"serves: {refusal.violations[0]}"
        return
    if name.execution:
        yield f"serves: {body}: a decoder serves a body, {name.body}; the lane table says which executions it has"
    elif body not in registry.lanes:
        yield f"serves: {body}: not a body of the lane table; bodies are {', '.join(registry.lanes)}"
    elif contract.element not in registry.lanes[body].elements:
        elements = " or ".join(registry.lanes[body].elements)
        yield f"serves: {body}: its weights are {elements}, and those of {contract.handle} are {contract.element}"
    elif body not in contract.floors:
        yield f"serves: {body}: {contract.handle} states no floor for it; floors are stated for {', '.join(contract.floors) or 'none'}"

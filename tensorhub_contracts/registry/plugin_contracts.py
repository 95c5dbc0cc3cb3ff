"""The contracts that a plugin owns: read from TOML, judged as the registry is, and added to it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import attrs

from tensorhub_contracts.documents import SEGMENT, structure
from tensorhub_contracts.errors import Refusal, RegistryError
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.check import contract_faults, digest_clashes
from tensorhub_contracts.registry.contract import Contract, OwnedContractsFile, Payload, ReferenceDequant, SidecarName
from tensorhub_contracts.registry.digests import contract_digest
from tensorhub_contracts.registry.names import parse_handle
from tensorhub_contracts.registry.registry import SCHEMA, Registry, load_registry
from tensorhub_contracts.registry.sidecar_names import SidecarNames, ends_in

Fact = TypeVar("Fact", SidecarName, Payload, ReferenceDequant)


@attrs.frozen(slots=False, repr=False)
class OwnedContracts(Readable):
    """The contracts of one producer that a plugin owns, with the sidecar names and dequants that they need.

    `owned["acme.int8-channel@1"]` is the `Contract` that `implements_contract` takes.
    """

    producer: str
    contracts: Mapping[str, Contract]
    sidecars: tuple[SidecarName, ...] = ()
    payloads: tuple[Payload, ...] = ()
    reference_dequants: tuple[ReferenceDequant, ...] = ()

    def __getitem__(self, handle: str) -> Contract:
        return self.contracts[handle]


def read_contracts(text: str, *, name: str = "contracts.toml") -> OwnedContracts:
    """Read the contracts that a plugin owns from TOML text.

    The text has the tables of `registry.toml` that describe contracts (`contract`, `sidecar`, `payload`,
    `reference_dequant`) and a `producer`, which every handle in it begins with. A sidecar or a dequant that the shipped
    registry has need not be repeated. Raises `RegistryError` with every fault; `name` is the file's name in it.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError([f"{name}: {error}"]) from error
    if data.get("schema") != SCHEMA:
        raise RegistryError([f"{name}: schema: expected {SCHEMA}, found {data.get('schema')!r}"])
    content = structure(data, OwnedContractsFile, name=name)
    faults = [f"{name}: {fault}" for fault in _faults(content, load_registry())]
    if faults:
        raise RegistryError(faults)
    contracts = {contract.handle: contract for contract in content.contract}
    return OwnedContracts(content.producer, contracts, content.sidecar, content.payload, content.reference_dequant)


def with_owned(registry: Registry, owned: OwnedContracts) -> Registry:
    """Return a registry that has the contracts of a plugin too.

    What both have and describe in the same words is quiet. Raises `RegistryError` for what they describe differently,
    and for two handles with one digest.
    """
    faults: list[str] = []
    digests = {handle: registry.digest(handle) for handle in registry.contracts}
    digests |= {handle: contract_digest(contract) for handle, contract in owned.contracts.items() if handle not in digests}
    faults += digest_clashes(digests)
    contracts = dict(registry.contracts)
    for handle, contract in owned.contracts.items():
        if contracts.setdefault(handle, contract) != contract:
            faults.append(f"{handle}: described differently by another plugin or by the shipped registry")
    sidecars = _added("sidecar", {each.suffix: each for each in registry.sidecars}, {each.suffix: each for each in owned.sidecars}, faults)
    payloads = _added("payload", {each.suffix: each for each in registry.payloads}, {each.suffix: each for each in owned.payloads}, faults)
    known = {each.name: each for each in registry.reference_dequants}
    dequants = _added("reference_dequant", known, {each.name: each for each in owned.reference_dequants}, faults)
    sidecar_names = SidecarNames(sidecars, payloads)
    for handle, contract in contracts.items():
        names = [each.name for each in dequants]
        faults += (f"{handle}.{fault}" for fault in contract_faults(contract, names, sidecar_names, registry.lanes))
    if faults:
        raise RegistryError(faults)
    return attrs.evolve(
        registry,
        contracts=contracts,
        sidecars=sidecars,
        payloads=payloads,
        reference_dequants=dequants,
        owned_sidecars=registry.owned_sidecars | {each.suffix for each in sidecars[len(registry.sidecars) :]},
        known_digests=digests,
    )


def _added(table: str, known: dict[str, Fact], new: dict[str, Fact], faults: list[str]) -> tuple[Fact, ...]:
    """Return the facts of both tables; note in `faults` what both have and state differently."""
    faults += (f"{table} {key}: described differently elsewhere" for key in new if key in known and known[key] != new[key])
    return tuple({**known, **new, **known}.values())  # known ones first, and as they are


def _faults(content: OwnedContractsFile, registry: Registry) -> Iterator[str]:
    sidecar_names = SidecarNames((*registry.sidecars, *content.sidecar), (*registry.payloads, *content.payload))
    dequants = [each.name for each in (*registry.reference_dequants, *content.reference_dequant)]
    if not content.contract:
        yield "contract: at least one"
    seen: set[str] = set()
    for place, contract in enumerate(content.contract):
        path = f"contract[{place}] ({contract.handle})"
        if contract.handle in seen:
            yield f"{path}.handle: listed twice"
        seen.add(contract.handle)
        yield from (f"{path}.{fault}" for fault in contract_faults(contract, dequants, sidecar_names, registry.lanes))
        if contract.handle in registry.contracts:
            yield f"{path}.handle: a shipped contract, and no plugin may replace it"
        elif _producer(contract.handle) not in (content.producer, ""):
            yield f"{path}.handle: the producer of this file is {content.producer!r}"
        if contract.decoder == "shipped":
            yield f"{path}.decoder: only the framework ships decoders; leave it out, and provide yours with the hook"
        if contract.marker:
            yield f"{path}.marker: only the shipped registry names markers, since each is refused in every other contract"
        if not contract.floors:
            yield f"{path}.floors: a floor for each lane body that a decoder may serve, 'none' where it runs anywhere"
    if not re.fullmatch(SEGMENT, content.producer):
        yield f"producer: lower-case letters and digits, with hyphens only inside, not {content.producer!r}"
    yield from _sidecar_faults(content, registry, sidecar_names)
    for dequant in content.reference_dequant:
        if not dequant.name.startswith(content.producer + "."):
            yield f"reference_dequant ({dequant.name}).name: begins with the producer, {content.producer}."


def _sidecar_faults(content: OwnedContractsFile, registry: Registry, sidecar_names: SidecarNames) -> Iterator[str]:
    """Yield what would let a plugin's sidecar or payload change how trees of other contracts are judged.

    A sidecar is known by the end of a name. A tensor whose name ends in a shipped sidecar's too is the shipped one's where that
    one's weight is there (`Grouping` settles it), so that a longer end may only say the same of it.
    """
    forms = [form for contract in content.contract for form in contract.form if "weight" in form.tensors]
    used = {sidecar_names.relative_to(form.primary.suffix, tensor.suffix) for form in forms for tensor in form.tensors.values()}
    for sidecar in content.sidecar:
        path = f"sidecar ({sidecar.suffix})"
        if any(sidecar.suffix == shipped.suffix for shipped in registry.sidecars):
            continue  # in the same words, or with_owned says so
        if sidecar.suffix not in used:
            yield f"{path}.suffix: no form of these contracts has such a sidecar"
        if _names_ordinary(sidecar.suffix):
            yield f"{path}.suffix: ordinary parameters have this name"
        for shipped in registry.sidecars:
            says_the_same = sidecar.role == shipped.role and not (sidecar.needs_quantized and not shipped.needs_quantized)
            if sidecar.suffix.endswith(shipped.suffix) and not says_the_same:
                yield f"{path}: takes names from the shipped sidecar {shipped.suffix} and says something else of them"
    for payload in content.payload:
        path = f"payload ({payload.suffix})"
        if any(payload.suffix == shipped.suffix for shipped in registry.payloads):
            continue
        if all(payload.suffix != form.primary.suffix for form in forms):
            yield f"{path}.suffix: no form of these contracts has such a weight"
        if _names_ordinary(payload.suffix):
            yield f"{path}.suffix: ordinary parameters have this name"
        for known in registry.payloads:
            if payload.suffix.endswith(known.suffix):
                yield f"{path}: takes names from the shipped payload {known.suffix}"


#: Names that ordinary tensors of unquantized models have: weights, stacked experts, biases, buffers.
_ORDINARY: Final = (".weight", ".bias", ".in_proj_weight", ".gate_up_proj", ".down_proj", ".gate_up_proj_bias", ".position_ids")


def _names_ordinary(suffix: str) -> bool:
    """Whether names of ordinary tensors end so."""
    return any(ends_in(name, suffix) for name in _ORDINARY)


def _producer(handle: str) -> str:
    try:
        return parse_handle(handle).producer
    except Refusal:
        return ""  # contract_faults says so

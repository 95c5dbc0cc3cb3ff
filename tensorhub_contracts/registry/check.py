"""Judges a registry: everything that structure alone cannot show, each fault with its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tensorhub_contracts.checkpoints.geometry import BITS, ELEMENTS
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.registry.contract import NOT_PROVABLE, Contract, Form, KnownAs, LaneBody, Marker, RegistryFile, Requirement
from tensorhub_contracts.registry.names import parse_handle, parse_lane
from tensorhub_contracts.registry.shape_patterns import parse_shape
from tensorhub_contracts.registry.sidecar_names import SidecarNames


def faults(content: RegistryFile) -> list[str]:
    """Return every fault of a structured registry as `path: what is wrong`."""
    found: list[str] = []
    seen: set[str] = set()
    sidecar_names = SidecarNames(content.sidecar, content.payload)
    dequants = {each.name for each in content.reference_dequant}
    lanes = {each.body: each for each in content.lane}
    for place, contract in enumerate(content.contract):
        path = f"contract[{place}] ({contract.handle})"
        if contract.handle in seen:
            found.append(f"{path}.handle: listed twice")
        seen.add(contract.handle)
        found += (f"{path}.{fault}" for fault in contract_faults(contract, dequants, sidecar_names, lanes))
    found += _lane_faults(content.lane)
    for place, conversion in enumerate(content.conversion):
        found += (
            f"conversion[{place}]: {handle} is not a contract of this registry"
            for handle in (*conversion.source, *conversion.to)
            if handle not in seen
        )
    for place, superseded in enumerate(content.superseded):
        if superseded.by not in seen:
            found.append(f"superseded[{place}].by: {superseded.by} is not a contract of this registry")
        if superseded.handle in seen:
            found.append(f"superseded[{place}].handle: {superseded.handle} is still listed as a contract")
    return found


def digest_clashes(digests: dict[str, str]) -> list[str]:
    """Return a fault for each pair of handles that name one layout; `digests` maps handles to digests."""
    first: dict[str, str] = {}
    clashes = []
    for handle, digest in digests.items():
        if digest in first:
            clashes.append(f"{handle}: has the digest of {first[digest]}: two handles name one layout")
        first.setdefault(digest, handle)
    return clashes


def contract_faults(
    contract: Contract, dequants: Iterable[str], sidecar_names: SidecarNames, lanes: Mapping[str, LaneBody]
) -> Iterator[str]:
    """Yield what is wrong with one contract, as `path inside the contract: what is wrong`.

    `dequants` are the names of the reference dequants, `lanes` the bodies of the lane table.
    """
    try:
        parse_handle(contract.handle)
    except Refusal as refusal:
        yield f"handle: {refusal.violations[0].expected}, not {contract.handle!r}"
    if contract.element not in ELEMENTS:
        yield f"element: {contract.element} is not a dtype"
    if contract.reference_dequant not in {*dequants, "none"}:
        yield f"reference_dequant: {contract.reference_dequant} is not listed under [[reference_dequant]]"
    yield from (f"not_provable: {each} is not a known word" for each in contract.not_provable if each not in NOT_PROVABLE)
    for body, floor in contract.floors.items():
        if floor != "none" and floor < 1:
            yield f"floors.{body}: a floor is a compute capability such as 89, or 'none'"
        if body not in lanes:
            yield f"floors.{body}: not a body of the lane table"
        elif contract.element not in lanes[body].elements:
            yield f"floors.{body}: its weights are {' or '.join(lanes[body].elements)}, and the element is {contract.element}"
    yield from _rule_faults(contract)
    for place, marker in enumerate(contract.marker):
        yield from (f"marker[{place}].{fault}" for fault in _marker_faults(marker, sidecar_names))
    for form in contract.form:
        yield from (f"form.{form.name}.{fault}" for fault in _form_faults(form, sidecar_names))
    yield from (f"known_as[{place}].{fault}" for place, other in enumerate(contract.known_as) for fault in _known_as_faults(other))
    if len({(other.corpus, other.handle) for other in contract.known_as}) < len(contract.known_as):
        yield "known_as: one digest for each handle of a corpus"
    for place, each in enumerate(contract.declares):
        yield from (f"declares[{place}].{fault}" for requirement in each.require for fault in _requirement_faults(requirement))


def _rule_faults(contract: Contract) -> Iterator[str]:
    """Yield what is wrong with the rules for tensors that nothing scales, and for checkpoints that declare nothing."""
    for dtype in (*contract.unquantized.matrix_dtypes, *contract.unquantized.vector_dtypes):
        if dtype not in BITS:
            yield f"unquantized: {dtype} is not a dtype"
    if contract.unquantized.mixed and len(set(contract.unquantized.matrix_dtypes)) < 2:
        yield "unquantized.mixed: at least two matrix_dtypes"
    if contract.when_undeclared == "never" and not contract.declares:
        yield "undeclared: never, and nothing declares it: no checkpoint could be in it"


def _marker_faults(marker: Marker, sidecar_names: SidecarNames) -> Iterator[str]:
    if not marker.name or "." in marker.name or marker.name in ("weight", "bias") or sidecar_names[marker.name] is not None:
        yield "name: a whole segment, and the name of no other tensor"
    yield from (f"dtypes: {dtype} is not a dtype" for dtype in marker.dtypes if dtype not in BITS)
    if not marker.dtypes or not marker.shapes or any(size < 0 for shape in marker.shapes for size in shape):
        yield "dtypes and shapes: at least one each, and no size below 0"


def _known_as_faults(other: KnownAs) -> Iterator[str]:
    for name, text in (("corpus", other.corpus), ("handle", other.handle)):
        if not text.strip() or not text.isprintable():
            yield f"{name}: a name, not {text!r}"
    if re.fullmatch("(sha256:)?[0-9a-f]{64}", other.digest, re.ASCII) is None:
        yield f"digest: 64 hexadecimal digits in lower case, with or without sha256:, not {other.digest!r}"


def _lane_faults(lanes: tuple[LaneBody, ...]) -> Iterator[str]:
    for place, lane in enumerate(lanes):
        path = f"lane[{place}] ({lane.body})"
        try:
            if parse_lane(lane.body).body != lane.body:
                yield f"{path}.body: a body is <weights>-<activation>[-<scale>], such as fp8-w8a16"
        except Refusal as refusal:
            yield f"{path}.body: {refusal.violations[0].expected}"
        if any(lane.body == other.body or lane.rank == other.rank for other in lanes[:place]):
            yield f"{path}: a body before it has the same name or the same rank"
        if not lane.executions or len(set(lane.executions)) < len(lane.executions):
            yield f"{path}.executions: at least one, and none twice"
        if not lane.elements or len(set(lane.elements)) < len(lane.elements):
            yield f"{path}.elements: at least one, and none twice"
        if lane.rank < 1:
            yield f"{path}.rank: 1 or more"
        yield from (f"{path}.elements: {element} is not an element" for element in lane.elements if element not in ELEMENTS)


def _form_faults(form: Form, sidecar_names: SidecarNames) -> Iterator[str]:
    if "weight" not in form.tensors:
        yield "tensors: the primary tensor, role 'weight', is missing"
        return
    if form.primary.suffix and sidecar_names.of_suffix(form.primary.suffix):
        yield f"tensors.weight.name: a [[sidecar]] says that {form.primary.suffix!r} is a sidecar"
    for role, tensor in form.tensors.items():
        name = tensor.name.replace("{number}", "", 1) if role == "weight" else tensor.name
        placeholders = (name.count("{"), name.count("}"))
        if not name.startswith(("{module}", "{param}")) or placeholders != (1, 1) or (form.numbered and not name.startswith("{module}.")):
            yield f"tensors.{role}.name: begins with {{module}} or {{param}} and holds no other placeholder, but {{number}} of a weight"
        yield from (f"tensors.{role}.dtypes: {dtype} is not a dtype" for dtype in tensor.dtypes if dtype not in BITS)
        yield from (f"tensors.{role}.shapes: {fault}" for shape in tensor.shapes if (fault := _shape_fault(shape)))
        if role == "weight":
            bound = (dimension.binds for pattern in tensor.shapes if not _shape_fault(pattern) for dimension in parse_shape(pattern))
            if not all(bound):
                yield "tensors.weight.shapes: a size that is rounded up or multiplied binds no symbol"
        elif form.numbered:
            sidecar = sidecar_names.of_suffix(tensor.suffix)
            if sidecar is None or sidecar.suffix != tensor.suffix:
                yield f"tensors.{role}.name: no [[sidecar]] is called {tensor.suffix!r}"
        elif sidecar_names.relative_to(form.primary.suffix, tensor.suffix) is None:
            yield f"tensors.{role}.name: no [[sidecar]] describes {tensor.suffix!r} beside {form.primary.suffix!r}"


def _shape_fault(shape: tuple[str | int, ...]) -> str:
    try:
        parse_shape(shape)
    except ValueError as error:
        return str(error)
    return ""


def _requirement_faults(requirement: Requirement) -> Iterator[str]:
    stated = (requirement.equals is not None) + bool(requirement.any_of) + requirement.null + bool(requirement.keys)
    if stated != 1:
        yield f"{requirement.key}: states exactly one of equals, any_of, null and keys"
    if requirement.optional and requirement.absent:
        yield f"{requirement.key}: optional says more than absent: one of them"

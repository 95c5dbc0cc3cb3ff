"""Judges a registry: everything that structure alone cannot show, each fault with its path."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.contract import Contract, Form, RegistryFile, Requirement
from tensorhub_contracts.dtypes import BITS
from tensorhub_contracts.errors import Refusal
from tensorhub_contracts.handles import parse_handle
from tensorhub_contracts.leaf_names import LeafNames
from tensorhub_contracts.shapes import parse_shape

#: What headers cannot show, by the word that contracts use for it.
UNPROVED = {
    "values": "the values: scales that are zero, negative or not finite, and NaN codes, are seen only when bytes are read",
    "scale-direction": "the direction of the scale: that it multiplies is part of the contract, not of the headers",
    "grid-orientation": "the orientation of a scale grid with as many blocks down as across: it has the same shape transposed",
    "member-origins": "where members begin inside a fused weight: the contract counts blocks from row 0 of the stored tensor",
    "no-scale-was-removed": "that no scale was lost: in this contract the absence of scales is the identity",
    "nibble-order": "which of two packed elements lies in the low nibble",
    "swizzle": "the order of the swizzled scales",
}


def faults(content: RegistryFile) -> list[str]:
    """Return every fault of a structured registry as `path: what is wrong`."""
    found: list[str] = []
    seen: set[str] = set()
    leaf_names = LeafNames(content.leaf, content.payload)
    dequants = {each.name for each in content.reference_dequant} | {"none"}
    for place, contract in enumerate(content.contract):
        path = f"contract[{place}] ({contract.handle})"
        if contract.handle in seen:
            found.append(f"{path}.handle: listed twice")
        seen.add(contract.handle)
        found += (f"{path}.{fault}" for fault in _contract_faults(contract, dequants, leaf_names))
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


def _contract_faults(contract: Contract, dequants: set[str], leaf_names: LeafNames) -> Iterator[str]:
    try:
        parse_handle(contract.handle)
    except Refusal as refusal:
        yield f"handle: {refusal.violations[0].expected}, not {contract.handle!r}"
    if contract.element not in {*BITS, "F4_E2M1"}:
        yield f"element: {contract.element} is not a dtype"
    if contract.reference_dequant not in dequants:
        yield f"reference_dequant: {contract.reference_dequant} is not listed under [[reference_dequant]]"
    yield from (f"unproved: {each} is not a known word" for each in contract.unproved if each not in UNPROVED)
    yield from (
        f"floors.{lane}: a floor is a compute capability such as 89, or 'none'"
        for lane, floor in contract.floors.items()
        if floor != "none" and floor < 1
    )
    for dtype in (*contract.dense.matrix_dtypes, *contract.dense.vector_dtypes):
        if dtype not in BITS:
            yield f"dense: {dtype} is not a dtype"
    for form in contract.form:
        yield from (f"form.{form.name}.{fault}" for fault in _form_faults(form, leaf_names))
    for place, each in enumerate(contract.declares):
        yield from (f"declares[{place}].{fault}" for requirement in each.require for fault in _requirement_faults(requirement))


def _form_faults(form: Form, leaf_names: LeafNames) -> Iterator[str]:
    if "weight" not in form.tensors:
        yield "tensors: the primary tensor, role 'weight', is missing"
        return
    for role, tensor in form.tensors.items():
        if not tensor.name.startswith(("{module}", "{param}")) or tensor.name.count("{") != 1:
            yield f"tensors.{role}.name: begins with {{module}} or {{param}} and holds no other placeholder"
        yield from (f"tensors.{role}.dtypes: {dtype} is not a dtype" for dtype in tensor.dtypes if dtype not in BITS)
        yield from (f"tensors.{role}.shapes: {fault}" for shape in tensor.shapes if (fault := _shape_fault(shape)))
        if role != "weight" and leaf_names.relative_to(form.primary.suffix, tensor.suffix) is None:
            yield f"tensors.{role}.name: no [[leaf]] describes {tensor.suffix!r} beside {form.primary.suffix!r}"


def _shape_fault(shape: tuple[str | int, ...]) -> str:
    try:
        parse_shape(shape)
    except ValueError as error:
        return str(error)
    return ""


def _requirement_faults(requirement: Requirement) -> Iterator[str]:
    stated = (requirement.equals is not None) + bool(requirement.any_of) + requirement.null
    if stated != 1:
        yield f"{requirement.key}: states exactly one of equals, any_of and null"

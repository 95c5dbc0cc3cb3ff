"""Digests: SHA-256 over canonical JSON of the facts that make a contract what it is."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tensorhub_contracts.registry.contract import Contract, Form, Requirement, TensorFacts


def canonical_json(facts: Any) -> bytes:
    """Return the one spelling of `facts`: sorted keys, no spaces, UTF-8. Only str, int, bool, list and dict."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def contract_digest(contract: Contract) -> str:
    """Return `sha256:…` of the contract's normative facts. The handle is not among them: two names of one layout clash."""
    return "sha256:" + hashlib.sha256(canonical_json(normative_facts(contract))).hexdigest()


def normative_facts(contract: Contract) -> dict[str, Any]:
    """Return the facts that the digest covers. An absent optional fact is left out, so that new ones change no digest."""
    facts: dict[str, Any] = {
        "element": contract.element,
        "reference_dequant": contract.reference_dequant,
        "scale_direction": contract.scale_direction,
        "dense": {
            "matrix_dtypes": sorted(contract.unquantized.matrix_dtypes),
            "vector_dtypes": sorted(contract.unquantized.vector_dtypes),
        },
        "forms": sorted((_form_facts(form) for form in contract.form), key=canonical_json),
        "declares": sorted(
            (
                {"source": each.source, "require": sorted(map(_requirement_facts, each.require), key=canonical_json)}
                | ({"modules": each.modules} if each.modules else {})
                for each in contract.declares
            ),
            key=canonical_json,
        ),
    }
    if contract.marker:
        markers = ({"name": each.name, "dtypes": sorted(each.dtypes), "shapes": sorted(map(list, each.shapes))} for each in contract.marker)
        facts["markers"] = sorted(markers, key=canonical_json)
    if contract.unquantized.mixed:
        facts["dense"]["mixed"] = True
    if contract.block is not None:
        facts["block"] = list(contract.block)
    if contract.multiple_of:
        facts["multiple_of"] = dict(contract.multiple_of)
    if contract.whole_tree:
        facts["whole_tree"] = True
    if contract.when_undeclared != ("never" if contract.declares else "allowed"):
        facts["undeclared"] = contract.when_undeclared
    if contract.probe:
        facts["probe"] = contract.probe
    return facts


def _form_facts(form: Form) -> dict[str, Any]:
    facts: dict[str, Any] = {"tensors": {role: _tensor_facts(tensor) for role, tensor in form.tensors.items()}}
    if form.required:
        facts["required"] = True
    return facts


def _tensor_facts(tensor: TensorFacts) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": tensor.name,
        "dtypes": sorted(tensor.dtypes),
        "shapes": sorted([str(dimension) for dimension in shape] for shape in tensor.patterns),
    }
    if tensor.optional:
        facts["optional"] = True
    return facts


def _requirement_facts(requirement: Requirement) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": requirement.key}
    if requirement.equals is not None:
        equals = requirement.equals
        facts["equals"] = list(equals) if isinstance(equals, tuple) else equals
    if requirement.any_of:
        facts["any_of"] = sorted(requirement.any_of)
    if requirement.keys:
        facts["keys"] = sorted(requirement.keys)
    if requirement.null:
        facts["null"] = True
    if requirement.optional:
        facts["optional"] = True
    if requirement.absent:
        facts["absent"] = True
    return facts

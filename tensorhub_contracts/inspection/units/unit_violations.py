"""Violations of single units: what differs from the contract, a sidecar without a weight, a packed weight without a sidecar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import MOST_VIOLATIONS, Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry
from tensorhub_contracts.inspection.units.unit_matching import Finding, UnitLayout
from tensorhub_contracts.registry.contract import Contract, Form, TensorFacts
from tensorhub_contracts.registry.shape_patterns import bind, write_pattern

if TYPE_CHECKING:
    from tensorhub_contracts.inspection.unexplained.neighbours import Neighbours


def unit_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation | int]:
    """Yield what differs from the contract, unit by unit, and how much more does; see `bounded`."""
    room = MOST_VIOLATIONS
    judgements = candidates.judged(contract.handle)
    neighbours: Neighbours | None = None
    for geometry, names in candidates.groups.quantized.items():
        judgement = judgements.get(geometry) or (_quantized_in_a_plain_tree(geometry, contract),)
        if not isinstance(judgement, UnitLayout):
            neighbours = neighbours or _neighbours(candidates)
            resembles = next((handle for handle in candidates.contracts_of(geometry) if handle != contract.handle), "")
            for finding in judgement:
                for name in names[:room]:
                    yield _unit_violation(candidates, finding, name, resembles, neighbours)
                yield max(0, len(names) - room)
                room = max(0, room - len(names))


def _neighbours(candidates: Candidates) -> Neighbours:
    from tensorhub_contracts.inspection.unexplained.neighbours import Neighbours  # only where a unit is wrong

    return Neighbours(candidates.checkpoint.shard_of, candidates.registry.sidecar_names)


def orphan_violations(candidates: Candidates) -> Iterator[Violation | int]:
    """Yield a violation for each sidecar that belongs to no quantized tensor."""
    if not candidates.groups.orphans:
        return  # and no table of all tensors is put together
    tensors = candidates.checkpoint.tensors
    yield max(0, len(candidates.groups.orphans) - MOST_VIOLATIONS)
    for name, sidecar in candidates.groups.orphans[:MOST_VIOLATIONS]:
        owners = [name.removesuffix(sidecar.suffix) + each for each in sidecar.beside]
        beside = next((owner for owner in owners if owner in tensors), "")
        found = f"{tensors[name].dtype} {write_shape(tensors[name].shape)}"
        if beside:
            found += f" beside {beside}, which is {tensors[beside].dtype} and not quantized"
        else:
            found += " and no tensor that it could belong to"
        yield Violation(
            code="scale-orphan",
            object=name,
            expected=f"a quantized tensor named {' or '.join(owners) or 'like it'}",
            found=found,
            shard=candidates.checkpoint.shard_of[name],
        )


def packed_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield a violation for each tensor that is named, typed and shaped as a packed weight of the contract and has no sidecar.

    An FP8 tensor is quantized whatever lies beside it. A U8 or I8 one is so because a sidecar or a payload's name says
    so; without either it counts among the integers of the tree, and its scale would be missed by nobody.
    """
    forms = [form for form in contract.form if form.primary.suffix and _sidecars(form)]
    for name, geometry in candidates.groups.other.items():
        form = next((form for form in forms if _is_packed_weight(name, geometry, form.primary)), None)
        if form is not None:
            stem = name.removesuffix(form.primary.suffix)
            wanted = (f"{stem}{each.suffix} {' or '.join(each.dtypes)} {write_pattern(each.patterns[0])}" for each in _sidecars(form))
            yield Violation(
                code="scale-missing",
                object=name,
                expected=" and ".join(wanted),
                found=f"no such tensor beside {geometry.dtype} {write_shape(geometry.shape)}",
                shard=candidates.checkpoint.shard_of[name],
            )


def _is_packed_weight(name: str, geometry: Geometry, weight: TensorFacts) -> bool:
    shaped = any(bind(pattern, geometry.shape) is not None for pattern in weight.patterns)
    return shaped and geometry.dtype in weight.dtypes and name.endswith(weight.suffix)


def _quantized_in_a_plain_tree(geometry: UnitGeometry, contract: Contract) -> Finding:
    return Finding(
        code="weight-dtype",
        sidecar="",
        expected=f"no quantized tensor in {contract.handle}",
        found=f"{geometry.dtype} {write_shape(geometry.shape)}",
    )


def _unit_violation(candidates: Candidates, finding: Finding, name: str, resembles: str, neighbours: Neighbours) -> Violation:
    tensors, shard_of = candidates.checkpoint.tensors, candidates.checkpoint.shard_of
    shown = _sidecar_of(candidates, name, finding.sidecar) if finding.sidecar else name
    holder = shown if shown in tensors else name
    if finding.code == "scale-missing":
        unknown = neighbours.unknown_neighbours(name)
        if unknown:
            return Violation(
                code="scale-name-unknown",
                object=name,
                expected=f"a scale named {shown}",
                found=f"only {unknown} beside it",
                shard=shard_of[name],
            )
        shown = name
    return Violation(
        code=finding.code,
        object=shown,
        expected=finding.expected,
        found=finding.found,
        remedy=finding.remedy,
        shard=shard_of[holder],
        resembles=resembles,
    )


def _sidecar_of(candidates: Candidates, weight: str, suffix: str) -> str:
    """Return the name of the tensor that ends in `suffix` and belongs to a weight: the one that is there, or the first that could be."""
    if suffix.startswith("{module}"):
        return candidates.groups.shared_by[weight]
    sidecar = next(each for each in candidates.registry.sidecars if each.suffix == suffix)
    names = [weight[: len(weight) - len(beside)] + suffix for beside in sidecar.beside if weight.endswith(beside)]
    return next((name for name in names if name in candidates.checkpoint.tensors), names[0] if names else weight + suffix)


def _sidecars(form: Form) -> list[TensorFacts]:
    """Return the tensors that a unit of a form has beside its weight, whatever else it may have."""
    return [tensor for role, tensor in form.tensors.items() if role != "weight" and not tensor.optional]

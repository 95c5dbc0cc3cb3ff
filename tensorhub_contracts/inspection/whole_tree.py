"""What a contract says of a checkpoint as a whole, beside its units: markers, forms that must be there, and weights that are numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.registry import Registry


def fits_as_a_whole(groups: TensorGroups, contract: Contract, forms: Iterable[str]) -> bool:
    """Whether a checkpoint whose units are in `forms` of a contract is as the contract says of the whole."""
    markers = {marker.name: marker for marker in contract.marker}
    for name, geometry in groups.markers.items():
        marker = markers.get(name.rpartition(".")[2])
        if marker is None or geometry.dtype not in marker.dtypes or geometry.shape not in marker.shapes:
            return False
    return has_required_forms(contract, forms) and all(len(numbers) == max(numbers) + 1 for numbers in groups.shared.values())


def has_required_forms(contract: Contract, forms: Iterable[str]) -> bool:
    """Whether units are in each form that a contract requires."""
    return {form.name for form in contract.form if form.required} <= set(forms)


def marker_violations(checkpoint: Checkpoint, groups: TensorGroups, contract: Contract, registry: Registry) -> Iterator[Violation]:
    """Yield a violation for each marker of another contract, and for each that is not as its own contract says."""
    markers = {marker.name: marker for marker in contract.marker}
    for name, geometry in groups.markers.items():
        segment, found = name.rpartition(".")[2], f"{geometry.dtype} {write_shape(geometry.shape)}"
        marker = markers.get(segment)
        shard = checkpoint.shard_of[name]
        if marker is None:
            owners = [each.handle for each in registry.contracts.values() if any(own.name == segment for own in each.marker)]
            expected = f"no such tensor in {contract.handle}: it marks {' or '.join(owners)}"
            yield Violation(code="marker-foreign", object=name, expected=expected, found=found, shard=shard, resembles=owners[0])
        elif geometry.dtype not in marker.dtypes or geometry.shape not in marker.shapes:
            expected = f"{' or '.join(marker.dtypes)} {' or '.join(map(write_shape, marker.shapes))}"
            yield Violation(code="marker-invalid", object=name, expected=expected, found=found, shard=shard)


def numbering_violations(checkpoint: Checkpoint, groups: TensorGroups) -> Iterator[Violation]:
    """Yield a violation for each sidecar whose numbered weights leave a number out: a weight is lost, or not quantized."""
    for sidecar, weights in groups.shared.items():
        greatest = max(weights)
        absent = greatest + 1 - len(weights)
        if absent:
            before, _, after = weights[greatest].rpartition(str(greatest))
            numbers = islice((number for number in range(greatest) if number not in weights), 3)
            described = [_absent(checkpoint, f"{before}{number}{after}") for number in numbers]
            yield Violation(
                code="number-missing",
                object=sidecar,
                expected=f"a quantized weight for each number from 0 to {greatest:,}",
                found=", ".join(described) + (f" and {absent - len(described):,} more" if absent > len(described) else ""),
                shard=checkpoint.shard_of[sidecar],
            )


def _absent(checkpoint: Checkpoint, name: str) -> str:
    geometry = checkpoint.tensors.get(name)
    return f"{name} is {geometry.dtype} {write_shape(geometry.shape)}" if geometry else f"no {name}"


def form_violations(checkpoint: Checkpoint, contract: Contract, forms: Iterable[str]) -> Iterator[Violation]:
    """Yield a violation for each form that a contract requires and no unit has."""
    present = set(forms)
    for form in contract.form:
        if form.required and form.name not in present:
            expected = f"at least one unit of {contract.handle} in the form {form.name}: {form.primary.name}"
            yield Violation(code="form-missing", object=checkpoint.path, expected=expected, found="none")

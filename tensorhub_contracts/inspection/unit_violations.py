"""Packed weights without their sidecars: bytes that only the contract tells from ordinary integers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property

from tensorhub_contracts.checkpoints.geometry import PACKED, write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.registry.contract import Contract, Form, TensorFacts
from tensorhub_contracts.registry.registry import Registry
from tensorhub_contracts.registry.shape_patterns import bind, write_pattern
from tensorhub_contracts.registry.sidecar_names import SidecarNames


class Siblings:
    """Finds the tensors beside a weight; the names are sorted once, when the first weight without a scale is met."""

    def __init__(self, names: Iterable[str], registry: Registry) -> None:
        self._names = names
        self._leaf_names = SidecarNames(registry.sidecars)

    def unknown(self, weight: str) -> str:
        """Return, for a message, the tensors beside a weight that are neither its bias nor a sidecar that the registry knows.

        Beside `x.weight` is what begins with `x.`; beside a bare parameter `x`, what begins with `x_`.
        """
        module = weight.removesuffix(".weight")
        prefix = module + "." if module != weight else weight + "_"
        found = []
        for name in self._beginning_with(prefix):
            rest = name[len(prefix) :]
            last = name.rpartition(".")[2]
            if "." not in rest and rest not in ("weight", "bias"):
                sidecar = self._leaf_names[last]
                if sidecar is None or sidecar.needs_quantized:
                    found.append(last)
        return ", ".join(found[:3])

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._names)

    def _beginning_with(self, prefix: str) -> Iterator[str]:
        names = self._sorted
        place = bisect_left(names, prefix)
        while place < len(names) and names[place].startswith(prefix):
            yield names[place]
            place += 1


def packed_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Yield a violation for each tensor that is named, typed and shaped as a packed weight of the contract and has no sidecar.

    An FP8 tensor is quantized whatever lies beside it. A U8 or I8 one is so because a sidecar or a payload's name says
    so; without either it counts among the integers of the tree, and its scale would be missed by nobody.
    """
    forms = [form for form in contract.form if form.primary.suffix and set(form.primary.dtypes) & PACKED and _sidecars(form)]
    for name, geometry in candidates.groups.other.items():
        for form in forms:
            weight = form.primary
            shaped = any(bind(pattern, geometry.shape) is not None for pattern in weight.patterns)
            if geometry.dtype in weight.dtypes and name.endswith(weight.suffix) and shaped:
                stem = name.removesuffix(weight.suffix)
                expected = " and ".join(
                    f"{stem}{each.suffix} {' or '.join(each.dtypes)} {write_pattern(each.patterns[0])}" for each in _sidecars(form)
                )
                found = f"no such tensor beside {geometry.dtype} {write_shape(geometry.shape)}"
                remedy = "Restore the scale from the original; it is never assumed to be 1."
                yield Violation(
                    code="scale-missing",
                    object=name,
                    expected=expected,
                    found=found,
                    remedy=remedy,
                    shard=candidates.checkpoint.shard_of[name],
                )
                break


def _sidecars(form: Form) -> list[TensorFacts]:
    """Return the tensors that a unit of a form has beside its weight, whatever else it may have."""
    return [tensor for role, tensor in form.tensors.items() if role != "weight" and not tensor.optional]

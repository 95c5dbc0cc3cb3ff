"""Packed weights without their sidecars: bytes that only the contract tells from ordinary integers."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.contract import Contract, Form, TensorFacts
from tensorhub_contracts.dtypes import PACKED
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.evidence import Evidence
from tensorhub_contracts.shapes import bind, write_pattern, write_shape


def packed_violations(evidence: Evidence, contract: Contract) -> Iterator[Violation]:
    """Yield a violation for each tensor that is named, typed and shaped as a packed weight of the contract and has no sidecar.

    An FP8 tensor is quantized whatever lies beside it. A U8 or I8 one is so because a sidecar or a payload's name says
    so; without either it counts among the integers of the tree, and its scale would be missed by nobody.
    """
    forms = [form for form in contract.form if form.primary.suffix and set(form.primary.dtypes) & PACKED and _sidecars(form)]
    for name, geometry in evidence.groups.other.items():
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
                yield Violation("scale-missing", name, expected, found, remedy, evidence.checkpoint.shard_of[name])
                break


def _sidecars(form: Form) -> list[TensorFacts]:
    """Return the tensors that a unit of a form has beside its weight, whatever else it may have."""
    return [tensor for role, tensor in form.tensors.items() if role != "weight" and not tensor.optional]

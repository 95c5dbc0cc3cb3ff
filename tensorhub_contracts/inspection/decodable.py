"""Whether something installed here decodes a checkpoint: another question than what it is."""

from __future__ import annotations

import attrs

from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.result import Inspection


def require_decodable(inspection: Inspection) -> Inspection:
    """Return an inspection as it is if it is not proved or a decoder for its contract is installed, else the refusal of it."""
    candidates = inspection.candidates
    if inspection.contract is None or candidates is None or inspection.contract in candidates.registry.decoded:
        return inspection
    violation = Violation(
        code="contract-without-decoder",
        object=inspection.path,
        expected="a contract that has a decoder here",
        found=f"{inspection.contract}: {candidates.look_like()}",
        remedy=f"Install a plugin whose decoder reads {inspection.contract}, or use an export in a contract that has a decoder."
        + candidates.registry.unavailable_note,
        resembles=inspection.contract,
    )
    return attrs.evolve(inspection, contract=None, digest=None, proved=(), violations=(violation,))

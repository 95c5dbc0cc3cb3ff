"""`load`: proves a checkpoint, asks what may decode it here, runs that decoder, and says what ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec

from tensorhub_contracts.demand import EVERY_COMPONENT, Demand
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.execution_lanes import derive_execution_lanes
from tensorhub_contracts.inspection import Inspection
from tensorhub_contracts.inspector import inspect
from tensorhub_contracts.plugin_loading import Claim
from tensorhub_contracts.plugins import installed_plugins
from tensorhub_contracts.satisfying import satisfies
from tensorhub_contracts.verdict import ComponentVerdict, RejectedLane


class LoadReport(msgspec.Struct, frozen=True):
    """What was loaded, by whom, and how.

    `lane_asked` is empty if any would do; `rejected` are the lanes that were passed over, with who decided. `compute_paths`
    maps what computed to the weights that it computed, as the decoder reports them; tensors that are as they are stored
    are in none. `stored_bytes` is what the checkpoint's tensors take in its files, `resident_bytes` what the loaded ones
    take in memory. `resident` says whether weights keep their stored form.
    """

    path: str
    component: str
    headers_digest: str
    contract: str
    digest: str
    lane_asked: str
    lane: str
    decoder: str
    distribution: str
    version: str
    rejected: tuple[RejectedLane, ...]
    device: str
    dtype: str
    resident: bool
    compute_paths: Mapping[str, tuple[str, ...]]
    stored_bytes: int
    resident_bytes: int


class LoadedWeights(msgspec.Struct, frozen=True):
    """The tensors of a checkpoint by name, and the report of how they came to be."""

    weights: Mapping[str, Any]
    report: LoadReport


def load(
    source: str | Path,
    component: str = "",
    *,
    dtype: str,
    resident: bool,
    contract: str | None = None,
    lane: str | None = None,
    device: str = "cpu",
    sm: int | None = None,
) -> LoadedWeights:
    """Load the weights of a checkpoint through the decoder that the verdict names.

    `dtype` is what quantized weights become: BF16 or F16 in a lane of 16-bit activations, F32 in one of 32. `resident`
    asks for weights that stay in their stored form: each comes as the module that computes with it. A decoder that only
    decodes ahead of time is refused with True, and one that knows no other device with any but the CPU.
    With `contract`, exactly that one is accepted. `lane` is a family, a body or a lane; without it the best one is taken,
    and the report says which were passed over. `device` is where weights go, by the name that the decoder knows, and `sm`
    its compute capability (90 is 9.0; `tensorhub_decoders.devices.compute_capability` asks torch): without it, only lanes
    without a floor run. A `dtype` that the lane does not have is refused. Raises `Refusal` with
    everything that is wrong; a decoder's own errors propagate, and nothing falls back to another lane.
    """
    inspection = inspect(source, component, contract=contract).require()
    demand = Demand(lanes={} if lane is None else {EVERY_COMPONENT: lane}, sm=sm)
    (verdict,) = satisfies(inspection, derive_execution_lanes(), demand).components
    function = _claim(verdict).function
    asked = _understood(function, verdict, resident=resident, device=device)
    weights: dict[str, Any] = {}
    computed: dict[str, list[str]] = {}
    for name, tensor, compute_path in function(inspection, lane=verdict.lane, dtype=dtype, **asked):
        weights[name] = tensor
        for path in (compute_path,) if isinstance(compute_path, str) else compute_path:
            if path:
                computed.setdefault(path, []).append(name)
    return LoadedWeights(weights, _report(inspection, verdict, weights, computed, lane or "", device, dtype, resident))


def _understood(function: Callable[..., Any], verdict: ComponentVerdict, *, resident: bool, device: str) -> dict[str, Any]:
    """Return what a decoder is told beyond lane and dtype. Raises `Refusal` if it has no word for what is asked."""
    parameters = signature(function).parameters
    violations = []
    if resident and "resident" not in parameters:
        found = "one that decodes ahead of time"
        remedy = "Ask for resident=False: weights are upcast ahead of time, and take the memory of their dtype."
        violations.append(Violation("load-unsupported", verdict.decoder, "a decoder that takes `resident`", found, remedy))
    if device != "cpu" and "device" not in parameters:
        remedy = "Load on the CPU and move the tensors."
        violations.append(Violation("load-unsupported", verdict.decoder, "a decoder that takes `device`", f"device={device!r}", remedy))
    if violations:
        raise Refusal(violations, nearest=verdict.contract)
    return {name: value for name, value in (("resident", resident), ("device", device)) if name in parameters}


def _claim(verdict: ComponentVerdict) -> Claim:
    """Return the claim that a verdict names; the plugins are those that the lanes were derived from."""
    return next(
        claim
        for plugin in installed_plugins().loaded
        for claim in plugin.claims
        if (claim.decoder, claim.declaration.contract) == (verdict.decoder, verdict.contract)
    )


def _report(
    inspection: Inspection,
    verdict: ComponentVerdict,
    weights: Mapping[str, Any],
    computed: Mapping[str, list[str]],
    lane_asked: str,
    device: str,
    dtype: str,
    resident: bool,
) -> LoadReport:
    assert inspection.checkpoint is not None  # a proved contract has one
    return LoadReport(
        path=inspection.path,
        component=inspection.component,
        headers_digest=verdict.headers_digest,
        contract=verdict.contract,
        digest=verdict.digest,
        lane_asked=lane_asked,
        lane=verdict.lane,
        decoder=verdict.decoder,
        distribution=verdict.distribution,
        version=verdict.version,
        rejected=verdict.rejected,
        device=device,
        dtype=dtype,
        resident=resident,
        compute_paths={path: tuple(names) for path, names in computed.items()},
        stored_bytes=inspection.checkpoint.payload_bytes,
        resident_bytes=sum(int(tensor.nbytes) for tensor in weights.values()),
    )

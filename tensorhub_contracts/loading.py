"""`load`: proves a checkpoint, asks what may decode it here, runs that decoder, and says what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Final

import attrs

from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.exact_arithmetic import exact_arithmetic
from tensorhub_contracts.hub.demand import EVERY_COMPONENT, Demand
from tensorhub_contracts.hub.satisfies import satisfies
from tensorhub_contracts.hub.verdict import ComponentVerdict, RejectedLane
from tensorhub_contracts.inspection.inspector import inspect
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.lanes.derive import derive_execution_lanes
from tensorhub_contracts.plugins.declaring import DecodedTensor
from tensorhub_contracts.plugins.host import installed_plugins


@attrs.frozen
class UnsupportedLane:
    """A lane that was asked for and is not supported here, with everything that says so."""

    lane: str
    violations: tuple[Violation, ...]


@attrs.frozen
class LoadReport:
    """What was loaded, by whom, and how."""

    #: The checkpoint, and the part of a pipeline that it is.
    path: str
    component: str
    headers_digest: str
    contract: str
    digest: str
    #: Empty if any lane would do.
    lanes_asked: tuple[str, ...]
    #: Those of them that came first and are not supported here, with why.
    unsupported: tuple[UnsupportedLane, ...]
    #: The lane that was taken, and the decoder that ran.
    lane: str
    decoder: str
    distribution: str
    version: str
    #: The lanes of the image that were not taken, each with who decided.
    rejected: tuple[RejectedLane, ...]
    device: str
    dtype: str
    #: Whether weights keep their stored form.
    resident: bool
    #: What computes, with the weights that it computes with, as the decoder reports them; tensors that are as they are stored are in none.
    compute_paths: Mapping[str, tuple[str, ...]]
    #: Scales of a key or value cache: they scale no weight, and are loaded as they are stored.
    cache_scales: tuple[str, ...]
    #: What the checkpoint's tensors take in its files.
    stored_bytes: int
    #: What the loaded ones take in memory.
    resident_bytes: int


@attrs.frozen
class LoadedWeights:
    """The tensors of a checkpoint by name, and the report of how they came to be."""

    weights: Mapping[str, Any]
    report: LoadReport


#: The codes of refusals that let a load go on to the next lane that the caller names: it is not supported here.
NOT_SUPPORTED_HERE: Final = frozenset({"lane-unavailable", "floor-unmet", "load-unsupported", "kernel-unavailable"})


@attrs.frozen
class _Asked:
    """What a caller asks of a load, beside the lane."""

    lanes: tuple[str, ...]
    dtype: str
    resident: bool
    device: str
    sm: int | None


def load(
    source: str | Path,
    component: str = "",
    *,
    dtype: str,
    resident: bool,
    contract: str | None = None,
    lane: str | Sequence[str] | None = None,
    device: str = "cpu",
    sm: int | None = None,
) -> LoadedWeights:
    """Load the weights of a checkpoint through the decoder that the verdict names.

    `dtype` is what quantized weights become: BF16 or F16 in a lane of 16-bit activations, F32 in one of 32. `resident`
    asks for weights that stay in their stored form: each comes as the module that computes with it. A decoder that only
    decodes ahead of time is refused with True, and one that knows no other device with any but the CPU. With `contract`,
    exactly that one is accepted.

    `lane` is a family, a body or a lane, or several in the order in which they are wanted: the next one is taken only if
    one before it is not supported here (`NOT_SUPPORTED_HERE`), and the report says so. Without it the best one of the
    image is taken. `device` is where weights go, by the name that the decoder knows, and `sm` its compute capability (90
    is 9.0; docs/loading.md says how torch is asked): without it, only lanes without a floor run.

    Raises `Refusal` with everything that is wrong, of each lane that was asked for; a decoder's own errors propagate.
    """
    lanes = () if lane is None else (lane,) if isinstance(lane, str) else tuple(lane)
    asked = _Asked(lanes, dtype, resident, device, sm)
    inspection = inspect(source, component, contract=contract).require()
    unsupported: list[UnsupportedLane] = []
    for each in lanes or (None,):
        try:
            return _load_in(each, inspection, asked, unsupported)
        except Refusal as refusal:
            if each is None or len(lanes) == 1 or not NOT_SUPPORTED_HERE.issuperset(refusal.codes):
                raise
            unsupported.append(UnsupportedLane(each, tuple(refusal.violations)))
    raise Refusal([violation for each in unsupported for violation in each.violations], nearest=inspection.contract)


def _load_in(lane: str | None, inspection: Inspection, asked: _Asked, unsupported: Sequence[UnsupportedLane]) -> LoadedWeights:
    """Load in one lane, or in the best one."""
    demand = Demand(lanes={} if lane is None else {EVERY_COMPONENT: lane}, sm=asked.sm)
    (verdict,) = satisfies(inspection, derive_execution_lanes(), demand).components
    weights: dict[str, Any] = {}
    computed: dict[str, list[str]] = {}
    with exact_arithmetic():  # a decoder of any plugin, and the threads that it starts
        for name, tensor, compute_path in run_decoder(inspection, verdict, dtype=asked.dtype, resident=asked.resident, device=asked.device):
            weights[name] = tensor
            for path in _paths(compute_path):
                computed.setdefault(path, []).append(name)
    return LoadedWeights(weights, _report(inspection, verdict, weights, computed, asked, unsupported))


def run_decoder(
    inspection: Inspection, verdict: ComponentVerdict, *, dtype: str, resident: bool = False, device: str = "cpu"
) -> Iterable[DecodedTensor]:
    """Call the registered decoder that a verdict names, and return what it yields: `DecodedTensor` or plain tuples of the three.

    `inspection` is that of the checkpoint that the verdict is on, or of a part of it (`part_of`). Raises `Refusal`
    (`load-unsupported`) if the decoder does not take `resident` or `device` and is asked to.
    """
    function = installed_plugins().decoder(verdict.decoder, verdict.contract).function
    words = _understood(function, verdict, resident=resident, device=device)
    decoded: Iterable[DecodedTensor] = function(inspection, lane=verdict.lane, dtype=dtype, **words)
    return decoded


def _paths(compute_path: str | tuple[str, ...]) -> Iterator[str]:
    yield from (path for path in ((compute_path,) if isinstance(compute_path, str) else compute_path) if path)


def _understood(function: Callable[..., Any], verdict: ComponentVerdict, *, resident: bool, device: str) -> dict[str, Any]:
    """Return what a decoder is told beyond lane and dtype. Raises `Refusal` if it has no word for what is asked."""
    parameters = signature(function).parameters
    violations = []
    if resident and "resident" not in parameters:
        found = "one that decodes ahead of time"
        remedy = "Ask for resident=False: weights are upcast ahead of time, and take the memory of their dtype."
        violations.append(
            Violation(
                code="load-unsupported", object=verdict.decoder, expected="a decoder that takes `resident`", found=found, remedy=remedy
            )
        )
    if device != "cpu" and "device" not in parameters:
        remedy = "Load on the CPU and move the tensors."
        violations.append(
            Violation(
                code="load-unsupported",
                object=verdict.decoder,
                expected="a decoder that takes `device`",
                found=f"device={device!r}",
                remedy=remedy,
            )
        )
    if violations:
        raise Refusal(violations, nearest=verdict.contract)
    return {name: value for name, value in (("resident", resident), ("device", device)) if name in parameters}


def _report(
    inspection: Inspection,
    verdict: ComponentVerdict,
    weights: Mapping[str, Any],
    computed: Mapping[str, list[str]],
    asked: _Asked,
    unsupported: Sequence[UnsupportedLane],
) -> LoadReport:
    assert inspection.checkpoint is not None  # a proved contract has one
    return LoadReport(
        path=inspection.path,
        component=inspection.component,
        headers_digest=verdict.headers_digest,
        contract=verdict.contract,
        digest=verdict.digest,
        lanes_asked=asked.lanes,
        unsupported=tuple(unsupported),
        lane=verdict.lane,
        decoder=verdict.decoder,
        distribution=verdict.distribution,
        version=verdict.version,
        rejected=verdict.rejected,
        device=asked.device,
        dtype=asked.dtype,
        resident=asked.resident,
        compute_paths={path: tuple(names) for path, names in computed.items()},
        cache_scales=inspection.groups.cache_scales if inspection.groups is not None else (),
        stored_bytes=inspection.checkpoint.payload_bytes,
        resident_bytes=sum(int(tensor.nbytes) for tensor in weights.values()),
    )

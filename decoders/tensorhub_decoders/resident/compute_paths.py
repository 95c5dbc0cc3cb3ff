"""Which function computes with each resident unit: named before anything is read, from shapes and the device alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import ALIGNED_K, kernels_of

from tensorhub_contracts import Inspection, Refusal, Violation
from tensorhub_decoders.resident.multiply import COMPUTE_OF_BITS


def compute_paths(inspection: Inspection, activation_bits: int, dtype: str, device: torch.device) -> Mapping[str, tuple[str, ...]]:
    """Return for each unit the compute paths that a call may take, by how many rows of activations it has.

    On a CUDA device, compiles and loads the kernels first. Raises `Refusal` with everything that stands in the way:
    `load-unsupported` for a device without kernels and for activations of 8 bits on the CPU, `kernel-unavailable` for what
    the floor, NVRTC, the driver or alignment decides, with who did.
    """
    units = {name: _columns(inspection, name) for name in inspection.unit_tensors}
    if device.type == "cpu" and activation_bits != 8:
        return dict.fromkeys(units, (f"cpu.strip_upcast_w8a{activation_bits}",))
    if device.type != "cuda":
        remedy = "Load on the CPU in a lane of 16 or 32 bits, or on a CUDA device."
        expected = "a CUDA device" if device.type == "cpu" else "the CPU or a CUDA device"
        raise Refusal(
            [Violation(code="load-unsupported", object=f"fp8-w8a{activation_bits}", expected=expected, found=str(device), remedy=remedy)]
        )
    compute = COMPUTE_OF_BITS[activation_bits]
    violations = list(_misfits(units, compute, dtype))
    if not violations:
        try:
            _prepare(device, compute)
        except KernelUnavailable as error:
            violations.append(_unavailable(error))
    if violations:
        raise Refusal(violations)
    return {name: tuple(_paths(compute, columns)) for name, columns in units.items()}


def _columns(inspection: Inspection, name: str) -> int:
    assert inspection.checkpoint is not None  # a proved contract has one
    shape = inspection.checkpoint.headers[inspection.checkpoint.shard_of[name]].tensors[name].shape
    return shape[-1]


def _paths(compute: str, columns: int) -> Iterator[str]:
    """Yield the paths of the matrix kernels that take so many columns."""
    for kernel in kernels_of(compute):
        if kernel.compute != "quantize" and not (kernel.needs_alignment and columns % ALIGNED_K):
            yield kernel.compute_path


def _misfits(units: Mapping[str, int], compute: str, dtype: str) -> Iterator[Violation]:
    """Yield what no kernel of a compute takes, whatever the device: a dtype, and units of other widths."""
    if dtype == "F16":
        remedy = "Ask for BF16: kernels hold codes exactly in BF16 and sum in F32."
        yield Violation(
            code="kernel-unavailable",
            object=compute,
            expected="BF16 or F32",
            found="F16 (decided by: the dtypes that kernels have)",
            remedy=remedy,
        )
    for name, columns in units.items():
        if not tuple(_paths(compute, columns)):
            remedy = "Choose fp8-w8a16 or fp8-w8a32, whose kernels take any width."
            found = f"{columns} columns (decided by: alignment)"
            yield Violation(
                code="kernel-unavailable",
                object=name,
                expected=f"a multiple of {ALIGNED_K} columns for {compute}",
                found=found,
                remedy=remedy,
            )


def _prepare(device: torch.device, compute: str) -> None:
    """Compile and load the kernels of a compute; raises KernelUnavailable."""
    from tensorhub_cuda.launch.torch_op import prepare

    prepare(device, (compute,))


def _unavailable(error: KernelUnavailable) -> Violation:
    return Violation(
        code="kernel-unavailable",
        object=error.object,
        expected=error.expected,
        found=f"{error.found} (decided by: {error.decided_by})",
        remedy=error.remedy,
    )

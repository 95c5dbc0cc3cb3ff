"""`tensorhub kernels`: the CUDA kernels, and building them ahead of time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click
from tensorhub_cuda.catalog import KERNELS, Kernel, read_source, unsupported_reason
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.nvrtc.cache import build_cubin, digest_of
from tensorhub_cuda.nvrtc.cache_folder import cache_folder
from tensorhub_cuda.nvrtc.compile import Cubin, architecture_name, kernel_resources

from tensorhub_contracts.commands import EXIT_REFUSED
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.documents import document_json
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import size_in_words

_ARCHITECTURE = re.compile(r"(?:sm_)?(\d{2,3})a?")


class ArchitectureType(click.ParamType[Any]):
    """`sm_90`, `sm_90a` or `90`: a compute capability, whose exact target is built."""

    name = "ARCH"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _ARCHITECTURE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not an architecture; one is written sm_80, sm_89, sm_90", param, ctx)
        return int(found[1])


@attrs.frozen
class KernelList:
    """The kernels of this release."""

    #: The kernels.
    kernels: tuple[Kernel, ...]


@attrs.frozen
class BuiltKernel:
    """One kernel in a cubin that was built."""

    #: Its name.
    kernel: str
    #: The exact target, as in sm_90a.
    architecture: str
    #: The registers that a thread takes.
    registers: int
    #: The bytes that a thread stores to and loads from local memory because registers do not suffice.
    spill_bytes: int
    #: The bytes of the cubin, which kernels of one source share.
    size: int
    #: The digest of the cubin.
    digest: str
    #: Where the cubin lies.
    file: str


@attrs.frozen
class NotBuilt:
    """A kernel that was not built."""

    #: Its name.
    kernel: str
    #: The target that it was to be built for.
    architecture: str
    #: Whether NVRTC refused it; else the architecture does not have it.
    refused: bool
    #: Why it was not built.
    reason: str


@attrs.frozen
class BuildReport:
    """What a build wrote."""

    #: The folder.
    folder: str
    #: The kernels in the cubins that were built.
    built: tuple[BuiltKernel, ...]
    #: The others.
    not_built: tuple[NotBuilt, ...]


@click.group("kernels")
def command() -> None:
    """List the CUDA kernels, or build them ahead of time for an image. Its commands tell their exit codes."""


@command.command("list")
@output_option(("text", "json"))
def list_kernels(outputs: tuple[Output, ...]) -> None:
    """List the kernels of this release: what they compute, and the least compute capability that they run on.

    Exits with 0, and with 2 for wrong usage.
    """
    writers = {"text": lambda: "\n".join(_kernel_lines()) + "\n", "json": lambda: document_json(KernelList(KERNELS))}
    write_outputs(chosen_outputs(outputs), writers)


@command.command("build")
@click.option(
    "--arch",
    "architectures",
    type=ArchitectureType(),
    multiple=True,
    required=True,
    help="Build for this device, as sm_90. May be repeated.",
)
@click.option(
    "--output-folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the cubins here. Default: the folder of the compile cache.",
)
@output_option(("text", "json"))
def build(architectures: tuple[int, ...], output_folder: Path | None, outputs: tuple[Output, ...]) -> None:
    """Compile every kernel that an architecture has, ahead of time: needs NVRTC, and no GPU or driver.

    In an image's build file: RUN tensorhub kernels build --arch sm_90 --output-folder /opt/kernels. At run time,
    TENSOR_CONTRACTS_KERNEL_CACHE=/opt/kernels has them found, and the folder may be read-only; with TENSOR_CONTRACTS_DISABLE_JIT=1
    nothing else is compiled, and NVRTC need not be there.

    Exits with 0, with 1 if NVRTC is missing or refuses a kernel, if a kernel spills registers, or if an architecture is left
    without any kernel, with 2 for wrong usage or a folder that cannot be written, and with 3 for a fault of this tool.
    """
    outputs = chosen_outputs(outputs)
    folder = output_folder or cache_folder().path
    if folder is None:
        raise click.UsageError(f"{cache_folder().unusable} Or name a folder with --output-folder.")
    report = _build_all(dict.fromkeys(architectures), folder)
    write_outputs(outputs, {"text": lambda: "\n".join(_build_lines(report)) + "\n", "json": lambda: document_json(report)})
    without = {each.architecture for each in report.not_built} - {each.architecture for each in report.built}
    if without or any(each.refused for each in report.not_built) or any(each.spill_bytes for each in report.built):
        sys.exit(EXIT_REFUSED)


def _build_all(architectures: Iterable[int], folder: Path) -> BuildReport:
    """Build each source once an architecture; say of refusals at once, on standard error."""
    built: list[BuiltKernel] = []
    not_built: list[NotBuilt] = []
    for sm in architectures:
        name = architecture_name(sm)
        for sources in dict.fromkeys(kernel.sources for kernel in KERNELS):
            kernels = [kernel for kernel in KERNELS if kernel.sources == sources]
            reasons = {kernel.name: unsupported_reason(kernel, sm) for kernel in kernels}
            not_built += [NotBuilt(kernel, name, False, reason) for kernel, reason in reasons.items() if reason]
            wanted = [kernel for kernel in kernels if not reasons[kernel.name]]
            if not wanted:
                continue
            try:
                cubin, file = build_cubin(read_source(wanted[0]), sm, folder)
            except KernelUnavailable as unavailable:
                click.echo(f"{', '.join(kernel.name for kernel in wanted)}: {unavailable}", err=True)
                not_built += [NotBuilt(kernel.name, name, True, str(unavailable)) for kernel in wanted]
            except OSError as error:
                raise click.UsageError(f"cannot write {folder}: {error.strerror}") from error
            else:
                built += _built(wanted, cubin, file)
    return BuildReport(str(folder), tuple(built), tuple(not_built))


def _built(kernels: Iterable[Kernel], cubin: Cubin, file: Path) -> Iterator[BuiltKernel]:
    resources = kernel_resources(cubin.log)
    for kernel in kernels:
        of = resources[kernel.name]
        spills = of.spill_store_bytes + of.spill_load_bytes
        yield BuiltKernel(kernel.name, cubin.architecture, of.registers, spills, len(cubin.code), digest_of(cubin.code), str(file))


def _kernel_lines() -> Iterator[str]:
    width = max(len(kernel.name) for kernel in KERNELS)
    for kernel in KERNELS:
        words = [f"{kernel.compute:<8}", f"sm_{kernel.minimum_sm} or later"]
        words += [f"tile {kernel.tile_m} x {kernel.tile_n}", f"{kernel.threads} threads", f"{size_in_words(kernel.shared_bytes)} shared"]
        yield f"{kernel.name:<{width}}  " + ("  ".join(words) + ("  aligned rows" if kernel.needs_alignment else ""))


def _build_lines(report: BuildReport) -> Iterator[str]:
    width = max(len(kernel.name) for kernel in KERNELS)
    for each in report.built:
        spills = click.style(f"  {each.spill_bytes} bytes of spills", fg="red") if each.spill_bytes else ""
        size = size_in_words(each.size)
        yield f"{each.architecture:<8}  {each.kernel:<{width}}  {each.registers:>3} registers  {size:>8}  {Path(each.file).name}{spills}"
    for left in report.not_built:
        reason = left.reason.splitlines()[0]
        yield printable(f"{left.architecture:<8}  {left.kernel:<{width}}  not built: {reason}")
    files = len({each.file for each in report.built})
    yield printable(f"{files} cubin{'' if files == 1 else 's'} in {report.folder}")

"""`tensorhub doctor`: what the CUDA kernels find on this machine, and what does not fit together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import attrs
import click
from tensorhub_cuda.environment.facts import EnvironmentFacts, Problem, find_problems
from tensorhub_cuda.environment.look import find_environment
from tensorhub_cuda.nvrtc.cache import DISABLE_JIT

from tensorhub_contracts.commands import EXIT_REFUSED
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.documents import document_json
from tensorhub_contracts.lanes.requirements import TORCH_WITH_CUDA, missing_in_words, missing_requirements
from tensorhub_contracts.reports.printable import printable
from tensorhub_contracts.reports.summary import size_in_words

#: What decoders require whose lanes only a CUDA device runs.
_OF_KERNEL_LANES: Final = ("torch", TORCH_WITH_CUDA, "cuda.core")


@attrs.frozen
class Diagnosis:
    """What was found, and what is wrong with it."""

    #: Whether what is there fits together.
    consistent: bool
    #: What does not.
    problems: tuple[Problem, ...]
    #: What is there.
    environment: EnvironmentFacts
    #: What the lanes of kernels require and is missing: this installation does not claim them then.
    missing_for_lanes: tuple[str, ...]


@click.command("doctor")
@output_option(("text", "json"))
def command(outputs: tuple[Output, ...]) -> None:
    """Say what CUDA kernels find here: driver, devices, NVRTC, torch, the compile cache, and the file of each module.

    For each device, says which kernels run there, and who decided where one does not. Works where any of it is missing.

    Exits with 0 if what is there fits together, which a machine without a GPU does, with 1 if it does not, as with packages
    of several CUDA majors, with 2 for wrong usage and with 3 for a fault of this tool.
    """
    outputs = chosen_outputs(outputs)
    facts = find_environment()
    problems = find_problems(facts)
    diagnosis = Diagnosis(not problems, problems, facts, missing_requirements(_OF_KERNEL_LANES))
    writers = {"text": lambda: "\n".join(_lines(diagnosis)) + "\n", "json": lambda: document_json(diagnosis)}
    write_outputs(outputs, writers)
    if problems:
        sys.exit(EXIT_REFUSED)


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    facts = diagnosis.environment
    yield from _driver_lines(facts)
    yield from map(printable, _software_lines(facts))
    missing = diagnosis.missing_for_lanes
    yield printable(f"lanes    those of kernels are {f'not claimed: {missing_in_words(missing)}' if missing else 'claimed'}")
    for problem in diagnosis.problems:
        yield f"{click.style('refused', fg='red')}  {printable(problem.found)}"
        yield f"         {printable(problem.remedy)}"
    yield click.style("consistent", fg="green") if diagnosis.consistent else click.style("not consistent", fg="red")


def _driver_lines(facts: EnvironmentFacts) -> Iterator[str]:
    driver = facts.driver
    version = driver.version or "of unknown version"
    yield printable(f"driver   {version}, for CUDA {driver.cuda}" if driver.cuda else f"driver   {driver.reason}")
    for device in driver.devices:
        yield printable(f"device   {device.index}  {device.name}  sm_{device.sm}")
        for kernel in device.kernels:
            reason = printable(f"not here, decided by {kernel.decided_by}: {kernel.reason}")
            yield f"         {kernel.name:<26} {click.style('runs', fg='green') if kernel.available else reason}"


def _software_lines(facts: EnvironmentFacts) -> Iterator[str]:
    nvrtc, torch, cache = facts.nvrtc, facts.torch, facts.cache
    yield f"NVRTC    {nvrtc.version}  {nvrtc.library}" if nvrtc.version else f"NVRTC    none: {nvrtc.reason}"
    yield from (f"         {package.name} {package.version}" for package in nvrtc.packages)
    built_for = f"for CUDA {torch.cuda}" if torch.cuda else "built without CUDA"
    yield f"torch    {torch.version} {built_for}" if torch.version else "torch    not installed"
    size = f"{cache.files} cubin{'' if cache.files == 1 else 's'}, {size_in_words(cache.size)} of {size_in_words(cache.bound)}"
    yield f"cache    {cache.folder or 'none'}  ({cache.chosen_by})  {cache.state}, {size}"
    if cache.reason:
        yield f"         {cache.reason}"
    yield f"JIT      {f'off: {DISABLE_JIT} is set, and only cubins that are in the cache are used' if facts.jit_disabled else 'on'}"
    for module in facts.modules:
        yield f"module   {module.name:<15} " + (f"{module.version}  {module.file}" if module.file else "not installed")

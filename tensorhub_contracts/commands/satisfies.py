"""`tensorhub satisfies`: the hub's question, on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from tensorhub_contracts.commands import EXIT_REFUSED, EXIT_UNJUDGED
from tensorhub_contracts.commands.compute_capability import ComputeCapabilityType
from tensorhub_contracts.commands.document_files import document_bytes
from tensorhub_contracts.commands.inspect_command import inspect_path
from tensorhub_contracts.commands.outputs import Output, chosen_outputs, output_option, write_outputs
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.hub.artifact import Artifact, read_artifact
from tensorhub_contracts.hub.demand import EVERY_COMPONENT, Demand, read_demand
from tensorhub_contracts.hub.problem import problem_details, problem_json
from tensorhub_contracts.hub.satisfies import satisfies
from tensorhub_contracts.hub.verdict import Verdict, verdict_json
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.lanes.documents import read_lanes
from tensorhub_contracts.reports.printable import printable

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("satisfies")
@click.argument("artifact", type=click.Path(path_type=Path, exists=True))
@click.option("--image", required=True, type=_FILE, help="The lanes of the image, as `tensorhub lanes --output json` wrote them.")
@click.option("--demand", "demand_file", type=_FILE, help="The whole demand as JSON, in place of the options below.")
@click.option("--accept", multiple=True, metavar="[COMPONENT=]HANDLE", help="Accept a contract. May be repeated. Default: any.")
@click.option("--lane", multiple=True, metavar="[COMPONENT=]LANE", help="Ask for a lane, a body or a family (fp8, 8bit). Default: any.")
@click.option(
    "--sm",
    type=ComputeCapabilityType(),
    help="The compute capability of the device: 90, 9.0, sm_90 or sm_90a. Default: a device without one.",
)
@click.option("--adapters", is_flag=True, help="Adapters will be composed with the weights.")
@output_option(("text", "json"))
def command(
    artifact: Path,
    image: Path,
    demand_file: Path | None,
    accept: tuple[str, ...],
    lane: tuple[str, ...],
    sm: int | None,
    adapters: bool,
    outputs: tuple[Output, ...],
) -> None:
    """Say whether the image can execute the artifact as asked, and in which lane.

    ARTIFACT is the record that `tensorhub artifact` wrote, or a checkpoint, which is inspected. With --output json the
    answer is the verdict, or the RFC 9457 problem that a hub answers with status 422. Exits with 0 if the image
    satisfies the artifact, with 1 if it is refused, with 2 for wrong usage, with 3 for a fault of this tool and with 4 if
    the checkpoint could not be read.
    """
    outputs = chosen_outputs(outputs)
    if demand_file is not None and (accept or lane or sm is not None or adapters):
        raise click.UsageError("--demand is the whole demand; leave out --accept, --lane, --sm and --adapters")
    writers: dict[str, Callable[[], str]]
    lanes_of_image = document_bytes(image)
    try:
        demand = read_demand(document_bytes(demand_file), name=str(demand_file)) if demand_file else _demand(accept, lane, sm, adapters)
        verdict = satisfies(_subject(artifact), read_lanes(lanes_of_image, name=str(image)), demand)
        writers = {"text": lambda: "\n".join(_verdict_lines(verdict)) + "\n", "json": lambda: verdict_json(verdict)}
        code = 0
    except Refusal as refusal:
        found = refusal
        writers = {"text": lambda: "\n".join(_refusal_lines(found)) + "\n", "json": lambda: problem_json(problem_details(found))}
        code = EXIT_UNJUDGED if refusal.retryable else EXIT_REFUSED
    write_outputs(outputs, writers)
    sys.exit(code)


def _subject(path: Path) -> Artifact | list[Inspection]:
    """Read a record, or inspect a checkpoint."""
    if path.is_dir() or path.suffix == ".safetensors":
        return inspect_path(path, "", None)
    return read_artifact(document_bytes(path), name=str(path))


def _demand(accept: tuple[str, ...], lanes: tuple[str, ...], sm: int | None, adapters: bool) -> Demand:
    accepted: dict[str, tuple[str, ...]] = {}
    for item in accept:
        component, handle = _split(item)
        accepted[component] = (*accepted.get(component, ()), handle)
    wanted: dict[str, str] = {}
    for item in lanes:
        component, lane = _split(item)
        if wanted.get(component, lane) != lane:
            raise click.UsageError(f"--lane: {'every component' if component == EVERY_COMPONENT else component} has two lanes")
        wanted[component] = lane
    return Demand(accepted, wanted, sm, adapters)


def _split(item: str) -> tuple[str, str]:
    """Split `COMPONENT=VALUE`; a value alone is for every component."""
    component, equals, value = item.partition("=")
    return (component, value) if equals else (EVERY_COMPONENT, item)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield click.style("satisfied", fg="green", bold=True)
    for each in verdict.components:
        yield printable(f"{each.component or '(the root)'}: {each.contract} in {each.lane}")
        yield printable(f"  decoder   {each.decoder}  of {each.distribution} {each.version}".rstrip())
        yield from (printable(f"  rejected  {other.lane}: {other.decided_by}: {other.reason}") for other in each.rejected)


def _refusal_lines(refusal: Refusal) -> Iterator[str]:
    yield click.style("REFUSED", fg="red", bold=True) + f"  {refusal.violations[0].code}"
    for violation in refusal.violations:
        yield from map(printable, _violation_lines(violation))
    if refusal.nearest:
        yield printable(f"  nearest   {refusal.nearest}")


def _violation_lines(violation: Violation) -> Iterator[str]:
    yield violation.code
    yield f"  object    {violation.object}" + (f" of {violation.component}" if violation.component else "")
    yield f"  expected  {violation.expected}"
    yield f"  found     {violation.found}"
    yield f"  remedy    {violation.remedy}"

"""Writes the generated pages of docs/: refusal codes, contracts, command line, API, releases. With --check, says which are out of date."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

import tensorhub_contracts
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.commands import tensorhub
from tensorhub_contracts.lanes.hub_table import HUB_TABLE
from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.registry.contract import NOT_PROVABLE, Contract, Declares, Marker, Requirement
from tensorhub_contracts.registry.registry import Registry, load_registry
from tensorhub_contracts.registry.shape_patterns import write_pattern

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from tests.support.releases.facts import Release  # noqa: E402
from tests.support.releases.listed import RELEASES  # noqa: E402  # found from the repository's root

NOTICE = "<!-- Written by docs/generate.py (make docs); edits are overwritten. -->\n\n"
GROUPS = {
    "handle": "Handles and versions",
    "container": "Files, shards and configuration files",
    "declaration": "What the configuration declares",
    "layout": "The tree as a whole",
    "unit": "Weights and scales",
    "gate": "Artifacts, images and demands",
    "plugin": "Plugins",
    "loading": "Loading models",
    "converting": "Producing and decoding checkpoints",
}


def refusals() -> str:
    """The closed list of refusal codes, by group."""
    lines = ["# Refusal codes", "", "Every refusal has a code of this closed list. `tensorhub explain CODE` prints the same text.", ""]
    for group, title in GROUPS.items():
        lines += [f"## {title}", ""]
        for code, each in explanations().items():
            if each.group == group:
                lines += [f"### `{code}`", "", f"**{each.title}.** {each.meaning}", "", f"*What to do:* {each.remedy}", ""]
    return "\n".join(lines)


def contracts_index(registry: Registry) -> str:
    """The list of contracts, each with its own page."""
    lines = [
        "# Contracts",
        "",
        "`tensorhub inspect` proves each of them and exits with 0, whatever is installed. *Decoded*: a decoder ships with this release.",
        "*Proved*: to load such a checkpoint takes a plugin that decodes it (`contract-without-decoder`, if that is asked for).",
        "",
        "| handle | | what it is |",
        "|---|---|---|",
    ]
    for handle, each in registry.contracts.items():
        lines.append(f"| [`{handle}`]({page_name(handle)}) | {status(each)} | {each.summary} |")
    return "\n".join(lines) + "\n"


def contract_page(contract: Contract, registry: Registry) -> str:
    """One contract: its digest, units, declaration and what headers cannot show."""
    return "\n".join(_contract_lines(contract, registry)) + "\n"


def _contract_lines(contract: Contract, registry: Registry) -> Iterator[str]:
    yield f"# `{contract.handle}`"
    yield f"\n{contract.summary}\n"
    yield f"- Status: {status(contract)}"
    yield f"- Digest: `{registry.digest(contract.handle)}`"
    yield f"- Element: {contract.element}" + (f", block {contract.block[0]} x {contract.block[1]}" if contract.block else "")
    yield f"- Source: {contract.source}"
    yield f"- Evidence: {EVIDENCE[contract.evidence]}"
    yield from (f"- Known as `{each.handle}` in {each.corpus}, with digest `{each.digest}` there" for each in contract.known_as)
    for dequant in registry.reference_dequants:
        if dequant.name == contract.reference_dequant:
            yield f"- Reference dequant: `{dequant.name}`: `{dequant.formula}`; rounding: {dequant.rounding}"
    for symbol, factor in contract.multiple_of.items():
        yield f"- `{symbol}` is a multiple of {factor}"
    floors = ", ".join(f"`{body}` {floor if floor == 'none' else f'sm_{floor}'}" for body, floor in contract.floors.items())
    yield f"- [Lanes](../lanes.md) that a decoder may serve, with their floors: {floors}"
    if contract.form:
        yield from _unit_lines(contract)
    if contract.marker:
        yield from _marker_lines(contract.marker)
    yield "\n## Tensors that nothing scales\n"
    rule = contract.unquantized
    if rule.mixed:
        yield "Matrices have two dtypes or more."
    yield f"Matrices are {', '.join(rule.matrix_dtypes)}; vectors and scalars are {', '.join(rule.vector_dtypes)}."
    if not contract.form:
        yield "Where there is no matrix, this holds for vectors and scalars as it does for matrices."
    yield "\n## Declaration\n"
    if not contract.declares:
        yield "Nothing declares it. A quantization declaration in a configuration file is a refusal.\n"
    for declared in contract.declares:
        yield from _declared_lines(declared)
    yield UNDECLARED[contract.when_undeclared]
    yield "\n## What headers cannot show\n"
    yield from (f"- {NOT_PROVABLE[word]}" for word in contract.not_provable)


def _unit_lines(contract: Contract) -> Iterator[str]:
    yield "\n## Units\n"
    yield "| form | role | name | dtypes | shape |\n|---|---|---|---|---|"
    for form in contract.form:
        for role, tensor in form.tensors.items():
            shapes = " or ".join(map(write_pattern, tensor.patterns))
            optional = " (optional)" if tensor.optional else ""
            yield f"| {form.name} | {role}{optional} | `{tensor.name}` | {', '.join(tensor.dtypes)} | `{shapes}` |"
    yield "\nThere is at least one unit. The shape of the weight gives each symbol its value, every dimension at least 1; `/` rounds up."
    for form in contract.form:
        bound = {each.symbol for pattern in form.primary.patterns for each in pattern}
        others = (each.symbol for tensor in form.tensors.values() for pattern in tensor.patterns for each in pattern)
        free = dict.fromkeys(symbol for symbol in others if symbol and symbol not in bound)
        yield from (f"`{symbol}` is any size, at least 1." for symbol in free)
    yield from (f"There is at least one unit of the form `{form.name}`." for form in contract.form if form.required)
    if any(form.numbered for form in contract.form):
        yield "`{number}` counts from 0 without a gap; these weights share the other tensors of `{module}`."
    if contract.whole_tree:
        yield "No weight has a scale, and nothing that lies beside a weight may be one."


def _marker_lines(markers: tuple[Marker, ...]) -> Iterator[str]:
    yield "\n## Markers\n"
    yield "| name | dtypes | shape |\n|---|---|---|"
    for marker in markers:
        shapes = " or ".join(map(write_shape, marker.shapes))
        yield f"| `{marker.name}` | {', '.join(marker.dtypes)} | `{shapes}` |"
    yield "\nAt the root or under any prefix; it is no part of the model."


def _declared_lines(declared: Declares) -> Iterator[str]:
    yield f"In {PLACES[declared.source]}:\n"
    for each in declared.require:
        keys = " and ".join(f"`{key}`" for key in each.keys)
        yield f"- `{each.key}` holds no key but {keys}" if each.keys else f"- `{each.key}` = {value(each)}{_condition(each)}"
    if declared.modules:
        yield f"- `{declared.modules}` has a member for the module of each unit, and no other"
    yield ""


def _condition(requirement: Requirement) -> str:
    return ", if it is there" if requirement.optional else ", or the key is absent" if requirement.absent else ""


def value(requirement: Requirement) -> str:
    """Write the value that a requirement asks for, as JSON does: types are exact."""
    if requirement.null:
        return "null, or absent"
    return " or ".join(f"`{json.dumps(each)}`" for each in requirement.any_of or (requirement.equals,))


PLACES = {
    "quantization_config": "`quantization_config` of `config.json`, at any depth",
    "hf_quant_config": "`quantization` of `hf_quant_config.json`",
    "params": "`quantization` of `params.json`",
    "header_metadata": "`_quantization_metadata` of the headers' metadata",
}

UNDECLARED = {
    "never": "A checkpoint that declares nothing is not in this contract.",
    "allowed": "A checkpoint that declares nothing is in this contract if its tensors are.",
    "if-unique": "A checkpoint that declares nothing is in this contract if its tensors are, and are in no other contract.",
}

EVIDENCE = {
    "code": "read in source code, or two independent sources agree",
    "report": "stated in a public report",
    "inferred": "inferred",
}


def status(contract: Contract) -> str:
    """Whether inspection accepts the contract or recognizes it."""
    return "decoded" if contract.decoder == "shipped" else "proved"


def page_name(handle: str) -> str:
    """The file name of a contract's page."""
    return handle.replace("@", "-v") + ".md"


def lanes_page(registry: Registry) -> str:
    """The lane table: bodies, best rank first, and the floors that contracts state for them."""
    lines = [
        "# Lanes",
        "",
        "A lane says how weights are computed with: `<weights>-<activation>[-<scale>]+<execution>`, for example `fp8-w8a16+eager`.",
        "The part before the plus is its *body*, the weights alone its *family*. A decoder declares bodies; this table says which",
        "executions a body has, which weights it may have, and in which order lanes are preferred. It is closed: hubs compare",
        "bodies byte for byte.",
        "",
        "The *hub's lane table* is that of the public worker and of its hub, who refuse a lane that is not in it. An image lists the lanes",
        "that it has of the table as `lanes`, and others as `lanes_beyond_table`; a lane of the table is preferred to one beyond it.",
        "",
        "| rank | body | executions | in the hub's table | weights | what it is |",
        "|---:|---|---|---|---|---|",
    ]
    for lane in registry.lanes.values():
        known = ", ".join(execution for execution in lane.executions if f"{lane.body}+{execution}" in HUB_TABLE) or "none"
        executions = ", ".join(lane.executions)
        lines.append(f"| {lane.rank} | `{lane.body}` | {executions} | {known} | {', '.join(lane.elements)} | {lane.summary} |")
    lines += [
        "",
        "A *floor* is the least compute capability (sm) that a lane of a contract runs on; `none` is stated, and never assumed.",
        "",
        "| contract | floors |",
        "|---|---|",
    ]
    for handle, contract in registry.contracts.items():
        floors = ", ".join(f"`{body}` {floor if floor == 'none' else f'sm_{floor}'}" for body, floor in contract.floors.items())
        lines.append(f"| [`{handle}`](contracts/{page_name(handle)}) | {floors} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """The help text of every command."""
    lines = ["# Command line", ""]
    for path, command in _commands(tensorhub, "tensorhub"):
        context = click.Context(command, info_name=path, max_content_width=110)
        lines += [f"## `{path}`", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _commands(child, f"{path} {name}")


def api() -> str:
    """The public names of the package, from their docstrings."""
    lines = ["# Python API", "", "Everything below is imported from `tensorhub_contracts`.", ""]
    for name in tensorhub_contracts.__all__:
        each = getattr(tensorhub_contracts, name)
        if not callable(each):
            continue
        signature = f"({', '.join(map(str, inspect.signature(each).parameters.values()))})" if inspect.isfunction(each) else ""
        kind = "class" if inspect.isclass(each) else "value"
        lines += [f"## `{name}`", "", f"```python\n{name}{signature}\n```" if signature else f"*{kind}*", ""]
        lines += [inspect.getdoc(each) or "", ""]
        if inspect.isclass(each):
            lines += [*_fields(each), *_members(each)]
    return "\n".join(lines)


def _fields(kind: type) -> list[str]:
    """List the fields of a class with the comments that stand above them (`#: ...`)."""
    if not attrs.has(kind):
        return []
    source, fields = inspect.getsource(kind), []
    for field in attrs.fields(kind):
        written = re.search(rf"((?:^ +#: .*\n)*)^ +{field.name}: ", source, re.MULTILINE)
        words = re.sub(r"\s*#: ", " ", written[1]).strip() if written else ""
        fields.append(f"- `{field.name}`" + (f": {words}" if words else ""))
    return [*fields, ""]


def _members(kind: type) -> list[str]:
    members = []
    for name, member in vars(kind).items():
        documented = getattr(member, "func", None) or getattr(member, "fget", None) or member
        if not name.startswith("_") and (inspect.isfunction(documented)) and inspect.getdoc(documented):
            members.append(f"- `{name}`: {inspect.getdoc(documented)}".replace("\n", " "))
    return [*members, ""] if members else []


def releases_page(registry: Registry) -> str:
    """The releases whose geometry the tests inspect: what each is in, its counts, and where its geometry comes from."""
    lines = [
        "# Releases",
        "",
        "Published checkpoints whose headers are rebuilt in their true geometry, as sparse files, and inspected in the tests. Contract,",
        "account and notes are asserted, and one damaged neighbour of each is refused by name. No weight was downloaded.",
        "",
        "| release | contract | tensors | units | sidecars | unquantized | cache scales | bookkeeping | bytes |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_release_row(each, registry) for each in RELEASES]
    lines += ["", "The account of each adds up to all tensors and all bytes, and no tensor is refused.", ""]
    lines += ["## Where each geometry comes from", ""]
    for each in RELEASES:
        lines += [f"**{each.title}.** *Published:* {each.published} *Derived:* {each.derived}", ""]
    return "\n".join(lines)


def _release_row(release: Release, registry: Registry) -> str:
    account, name = release.account, f"`{release.contract}`"
    contract = f"[{name}](contracts/{page_name(release.contract)})" if release.contract in registry.contracts else name
    kinds = (account.weights, account.sidecars, account.unquantized, account.cache_scales, account.bookkeeping)
    counts = " | ".join(f"{each:,}" for each in (account.tensors, *kinds, release.payload_bytes))
    return f"| {release.title} | {contract} | {counts} |"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    registry = load_registry()
    found = {
        FOLDER / "refusals.md": refusals(),
        FOLDER / "command-line.md": command_line(),
        FOLDER / "api.md": api(),
        FOLDER / "lanes.md": lanes_page(registry),
        FOLDER / "releases.md": releases_page(registry),
        FOLDER / "contracts" / "README.md": contracts_index(registry),
    }
    for handle, contract in registry.contracts.items():
        found[FOLDER / "contracts" / page_name(handle)] = contract_page(contract, registry)
    return {path: NOTICE + text.rstrip() + "\n" for path, text in found.items()}


def main() -> None:
    """Write the pages, or compare them with what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for path in (FOLDER / "contracts").glob("*.md") if path not in wanted]
    if check and stale:
        sys.exit("out of date, run make docs: " + ", ".join(str(path.relative_to(FOLDER.parent)) for path in stale))
    if not check:
        for path in stale:
            if path in wanted:
                path.parent.mkdir(exist_ok=True)
                path.write_text(wanted[path], "utf-8")
            else:
                path.unlink()
    print(f"{len(wanted)} pages, {len(stale)} {'out of date' if check else 'written'}")


if __name__ == "__main__":
    main()

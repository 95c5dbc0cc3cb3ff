"""`tensorhub contracts`: the registry, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tensorhub_contracts.commands.handles import HandleType, resolve_argument
from tensorhub_contracts.commands.outputs import answer
from tensorhub_contracts.plugins.installed import installed_registry
from tensorhub_contracts.registry.check import digest_clashes
from tensorhub_contracts.registry.contract import NOT_PROVABLE, Contract, Declares, Form
from tensorhub_contracts.registry.registry import Registry
from tensorhub_contracts.registry.shape_patterns import write_pattern


@click.group("contracts", invoke_without_command=True)
@click.option(
    "--output", "output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For people or for programs."
)
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """List the contracts of the registry; `contracts show HANDLE` shows one.

    Exits with 0, with 2 for wrong usage and with 3 if the registry is wrong.
    """
    if ctx.invoked_subcommand is not None:
        return
    registry = installed_registry()
    clashes = digest_clashes({handle: registry.digest(handle) for handle in registry.contracts})
    if clashes:
        from tensorhub_contracts.errors import RegistryError

        raise RegistryError(clashes)
    if output == "json":
        import json

        rows = [
            {"handle": handle, "digest": registry.digest(handle), "decoder": _decoder(each, registry), "summary": each.summary}
            for handle, each in registry.contracts.items()
        ]
        answer(json.dumps(rows, indent=2))
    else:
        width = max(map(len, registry.contracts))
        for handle, each in registry.contracts.items():
            status = click.style("decoded", fg="green") if handle in registry.decoded else click.style("proved ", dim=True)
            answer(f"{handle:<{width}}  {status}  {each.summary}")


@command.command("show")
@click.argument("handle", type=HandleType())
@click.option(
    "--output", "output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For people or for programs."
)
def show(handle: str, output: str) -> None:
    """Show one contract: its digest, units, declaration and what headers cannot show.

    Exits with 0, with 1 for a major that this registry does not have, and with 2 for a handle that no contract has.
    """
    registry = installed_registry()
    contract = resolve_argument(handle)
    if output == "json":
        import json

        from tensorhub_contracts.registry.digests import normative_facts

        facts: dict[str, Any] = {
            "handle": handle,
            "digest": registry.digest(handle),
            "summary": contract.summary,
            "source": contract.source,
        }
        facts["known_as"] = [{"corpus": each.corpus, "handle": each.handle, "digest": each.digest} for each in contract.known_as]
        answer(json.dumps({**facts, "normative": normative_facts(contract)}, indent=2, ensure_ascii=False))
        return
    answer("\n".join(_lines(contract, registry)))


def _decoder(contract: Contract, registry: Registry) -> str:
    """Say where the contract's decoder is from: shipped with the framework, from a plugin, or from nowhere."""
    if contract.handle not in registry.decoded:
        return "none"
    return "shipped" if contract.decoder == "shipped" else "plugin"


def _lines(contract: Contract, registry: Registry) -> Iterator[str]:
    yield click.style(contract.handle, bold=True) + f"  {registry.digest(contract.handle)}"
    yield f"  {contract.summary}"
    yield f"  source     {contract.source}"
    yield from (f"  known as   {each.handle} in {each.corpus}  {each.digest}" for each in contract.known_as)
    decoded = contract.handle in registry.decoded
    yield f"  status     {'proved, and decoded' if decoded else 'proved; nothing that is installed here decodes it'}"
    yield f"  element    {contract.element}" + (f", block {contract.block[0]} x {contract.block[1]}" if contract.block else "")
    for each in registry.reference_dequants:
        if each.name == contract.reference_dequant:
            yield f"  dequant    {each.name}: {each.formula}"
            yield f"             {each.rounding}"
    for lane, floor in contract.floors.items():
        yield f"  floor      {lane}: {'none' if floor == 'none' else f'sm_{floor}'}"
    for form in contract.form:
        yield from _form(form)
    rule = contract.unquantized
    yield f"  unquantized matrices {', '.join(rule.matrix_dtypes)}; vectors {', '.join(rule.vector_dtypes)}"
    yield from (f"  marker     {each.name}  {' or '.join(each.dtypes)}" for each in contract.marker)
    if contract.declares:
        yield f"  undeclared {contract.when_undeclared}"
    else:
        yield "  declared   by nothing: a quantization declaration is a refusal"
    for declared in contract.declares:
        yield from _declared(declared)
    for word in contract.not_provable:
        yield f"  not_provable   {NOT_PROVABLE[word]}"


def _form(form: Form) -> Iterator[str]:
    yield f"  {form.name}"
    for role, tensor in form.tensors.items():
        shapes = " or ".join(map(write_pattern, tensor.patterns))
        yield f"    {role:<16} {tensor.name}  {' or '.join(tensor.dtypes)} {shapes}" + ("  (optional)" if tensor.optional else "")


def _declared(declared: Declares) -> Iterator[str]:
    yield f"  declared   in {declared.source}"
    for each in declared.require:
        value = (
            "null"
            if each.null
            else f"no keys but {', '.join(each.keys)}"
            if each.keys
            else " or ".join(map(str, each.any_of)) or (list(each.equals) if isinstance(each.equals, tuple) else each.equals)
        )
        yield f"    {each.key} = {value}" + ("  (if present)" if each.optional or each.absent else "")

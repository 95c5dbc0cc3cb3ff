"""`tensorhub explain`: what a refusal code means and what to do."""

from __future__ import annotations

import textwrap

import click
from click.shell_completion import CompletionItem

from tensorhub_contracts.commands.outputs import answer
from tensorhub_contracts.refusal_codes import explanations


class _CodeType(click.ParamType[str]):
    name = "CODE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in explanations():
            import difflib

            close = difflib.get_close_matches(value, explanations(), n=3)
            hint = f"; did you mean {', '.join(close)}?" if close else "; `tensorhub explain` lists all"
            self.fail(f"{value!r} is not a refusal code{hint}", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(code, help=each.title) for code, each in explanations().items() if code.startswith(incomplete)]


@click.command("explain")
@click.argument("codes", nargs=-1, type=_CodeType(), metavar="[CODE]...")
def command(codes: tuple[str, ...]) -> None:
    """Explain refusal codes; without one, list all.

    Exits with 0, and with 2 for a code that is not on the list.
    """
    known = explanations()
    if not codes:
        width = max(map(len, known))
        for code, each in known.items():
            answer(f"{code:<{width}}  {each.title}")
        return
    for place, code in enumerate(dict.fromkeys(codes)):
        each = known[code]
        answer(("\n" if place else "") + click.style(code, bold=True) + f": {each.title}")
        answer(textwrap.fill(each.meaning, 100, initial_indent="  ", subsequent_indent="  "))
        answer(textwrap.fill(f"What to do: {each.remedy}", 100, initial_indent="  ", subsequent_indent="  "))

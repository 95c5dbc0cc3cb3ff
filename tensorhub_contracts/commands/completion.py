"""`tensorhub completion`: shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tensorhub_contracts.commands.outputs import answer


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: eval "$(tensorhub completion bash)", in ~/.bashrc to keep it. Exits with 0, and with 2 for an
    unknown shell.
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"no completion for {shell}")
    answer(completion(ctx.find_root().command, {}, "tensorhub", "_TENSORHUB_COMPLETE").source())

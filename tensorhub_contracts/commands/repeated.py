"""An option that takes one value is given once: the last of several would win, and nobody would know."""

from __future__ import annotations

from collections import Counter

import click


def refuse_repeated(command: click.Command, arguments: list[str], parent: click.Context) -> None:
    """Raise a usage error if a command line, or one of the commands of a group on it, has an option twice that takes one value."""
    context = click.Context(command, info_name=command.name, parent=parent)
    context.resilient_parsing = True
    try:
        _, rest, order = command.make_parser(context).parse_args(list(arguments))
    except click.UsageError:
        return  # click says so itself, when it parses
    for parameter, count in Counter(order).items():
        if count < 2 or not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
            continue
        if not parameter.is_flag or parameter.secondary_opts:
            raise click.UsageError(f"{'/'.join(parameter.opts)} is given {count} times, and takes one value", context)
    if isinstance(command, click.Group) and rest:
        member = command.get_command(context, rest[0])
        if member is not None:
            refuse_repeated(member, rest[1:], context)

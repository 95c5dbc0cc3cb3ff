"""An option that takes one value is given once, in every command: two values are wrong usage, never the last alone."""

from __future__ import annotations

import click
import pytest

from tensorhub_contracts.commands import tensorhub
from tests.support.cli import tensorhub as run


def singles() -> list[tuple[str, str]]:
    """Return every command, by its words, and each of its options that takes one value."""
    found: list[tuple[str, str]] = []

    def walk(command: click.Command, words: tuple[str, ...]) -> None:
        found.extend(
            (" ".join(words), each.opts[0])
            for each in command.params
            if isinstance(each, click.Option) and not each.multiple and not each.is_flag
        )
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                member = command.get_command(context, name)
                assert member is not None
                walk(member, (*words, name))

    walk(tensorhub, ())
    return found


@pytest.mark.parametrize(("words", "option"), singles())
def test_an_option_with_one_value_is_given_once(words: str, option: str) -> None:
    done = run(*words.split(), option, "1", f"{option}=2")
    assert (done.code, done.out) == (2, "")
    assert f"{option} is given 2 times, and takes one value" in done.err
    assert f"Usage: tensorhub {words}" in done.err


def test_there_are_such_options() -> None:
    assert {("inspect", "--contract"), ("satisfies", "--image"), ("satisfies", "--sm"), ("lanes", "--check"), ("produce", "--to")} <= set(
        singles()
    )


def test_what_may_be_repeated_is() -> None:
    done = run("inspect", "nowhere", "--output", "json", "--output", "text=/dev/null")
    assert "is given" not in done.err
    once = run("inspect", "nowhere", "--contract", "plain.bf16@1")
    assert "is given" not in once.err

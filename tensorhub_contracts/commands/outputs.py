"""`--output FORMAT[=FILE]`: reports for people and for programs, several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from tensorhub_contracts.errors import OutputError, writable
from tensorhub_contracts.plugins.answer_stream import answer_descriptor

#: A format, and the file that it goes to: empty for standard output.
Output = tuple[str, str]


class OutputType(click.ParamType[Any]):
    """`FORMAT` or `FORMAT=FILE`."""

    name = "FORMAT[=FILE]"

    def __init__(self, formats: Iterable[str]) -> None:
        self.formats = tuple(formats)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        format_name, equals, file = value.partition("=")
        if format_name not in self.formats:
            self.fail(f"{format_name!r} is not a format; formats are {', '.join(self.formats)}", param, ctx)
        if equals and not file:
            self.fail(f"{value!r} names no file after the equals sign", param, ctx)
        return format_name, file

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.formats if name.startswith(incomplete)]


def output_option(formats: Iterable[str]) -> Callable[[Any], Any]:
    """Return the option for a command whose reports have these formats, of which text is the default."""
    formats = tuple(formats)
    return click.option(
        "--output",
        "outputs",
        type=OutputType(formats),
        multiple=True,
        help=f"Write a report as {', '.join(formats)}: to standard output, or to a file. May be repeated. Default: text.",
    )


def chosen_outputs(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Return the outputs that were asked for, or text; refuse two for standard output before any work is done."""
    if sum(not file for _, file in outputs) > 1:
        raise click.UsageError("only one report can go to standard output; give the others a file, as in json=report.json")
    return outputs or (("text", ""),)


def write_outputs(outputs: Iterable[Output], writers: Mapping[str, Callable[[], str]]) -> None:
    """Write each report to where it was asked for."""
    for format_name, file in outputs:
        report = writable(writers[format_name]())
        if file:
            _write_file(file, click.unstyle(report) if format_name == "text" else report)
        else:
            answer(report, newline=False)


def answer(text: str, *, newline: bool = True) -> None:
    """Write text, and a line's end, to standard output, whatever plugins have made of that; raise `OutputError` where it cannot be written.

    A reader who has gone is a BrokenPipeError.
    """
    text += "\n" if newline else ""
    descriptor = answer_descriptor()
    try:
        if descriptor < 0:
            click.echo(text, nl=False)
        else:
            data = (text if os.isatty(descriptor) else click.unstyle(text)).encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error


def _write_file(path: str, report: str) -> None:
    from pathlib import Path  # most reports go to standard output

    try:
        Path(path).write_text(report, "utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error

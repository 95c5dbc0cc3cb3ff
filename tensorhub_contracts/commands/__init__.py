"""The command line, `tensorhub`. Each command is a module that is imported when the command is used.

Exit codes: 0 satisfied, 1 refused, 2 usage, 3 a fault of ours or of a plugin.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tensorhub_contracts._version import __version__
from tensorhub_contracts.errors import FaultError, OutputError, PluginError, PluginSelectionError, Refusal
from tensorhub_contracts.plugins.answer_stream import is_ours, keep_answers_apart

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tensorhub_contracts.commands.installed import InstalledCommand

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FAULT: Final = 3
EXIT_UNJUDGED: Final = 4

#: As shells count them: ended by Ctrl-C, and by a reader who had gone. Neither says anything of the checkpoint.
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141

_FAULT: Final = "This is a fault of tensorhub-contracts or of a plugin, not of your checkpoint."

_NOT_SAID: Final = "This is a fault of the environment: the answer could not be written, and says nothing of your checkpoint."

_FAULT_TITLES: Final = {"RegistryError": "The registry is wrong", "PluginError": "The plugins are wrong"}

#: The tool's own commands: name to the module that defines it (as `command`) and the line that --help shows for it. Others
#: come in through an entry-point group; see `commands.installed`.
_BUILT_IN: Final = {
    "inspect": ("inspect", "Prove which contract a checkpoint is in, from its headers alone."),
    "artifact": ("artifact", "Write the record of a proved checkpoint that a hub stores."),
    "plugins": ("plugins", "List the plugins of this environment, and why one is not in use."),
    "lanes": ("lanes", "Derive what this environment can execute, or compare it with a record."),
    "satisfies": ("satisfies", "Say whether an image can execute an artifact."),
    "contracts": ("contracts", "List the contracts of the registry, or show one."),
    "explain": ("explain", "Explain a refusal code."),
    "schema": ("schema", "Print the JSON Schema of something that this tool reads or writes."),
    "completion": ("completion", "Print the script that completes tensorhub in your shell."),
}


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Exit with a code of its own where the reader of the output has gone: click would exit with 1, which is a refusal."""
    try:
        yield
    except BrokenPipeError:
        _write_no_more()
        raise click.exceptions.Exit(EXIT_UNREAD) from None


def _write_no_more() -> None:
    """Let what is still buffered for standard output go nowhere: it cannot be written, and the interpreter would try again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Commands(click.Group):
    """Imports a command when it is invoked, so that inspect loads nothing that it does not need, and scans no metadata."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_BUILT_IN, *dict.fromkeys(each.name for each in self._installed() if each.name not in _BUILT_IN)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _BUILT_IN:
            if not ctx.resilient_parsing:  # a shell asks for names, which click prints
                keep_answers_apart()
            command: click.Command = importlib.import_module(f"{__name__}.{_BUILT_IN[name][0]}").command
            return command
        from tensorhub_contracts.commands.installed import load_command

        gc.enable()  # a command of another distribution may run for hours
        try:
            found = next((each for each in self._installed() if each.name == name), None)
            if found is None:
                return None
            if found.record.shipped and not ctx.resilient_parsing:
                keep_answers_apart()
            return load_command(found)
        except (PluginError, PluginSelectionError):
            if ctx.resilient_parsing:  # a shell asks, between the words that the user types
                return None
            raise

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and refuse what of its options is given twice."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            from tensorhub_contracts.commands.repeated import refuse_repeated

            refuse_repeated(command, rest, ctx)
        return name, command, rest

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Parse the command line, where --help is printed."""
        try:
            with _reader_may_leave():
                return super().make_context(info_name, args, parent, **extra)
        except OSError as error:
            raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; what its function returns is no exit code."""
        with _reader_may_leave():
            super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from tensorhub_contracts.commands.installed import short_help

        lines = [(name, line) for name, (_, line) in _BUILT_IN.items()]
        unused = []
        for each in self._installed():
            try:
                lines.append((each.name, short_help(each)))
            except (PluginError, PluginSelectionError) as error:
                unused.append((each.name, error.problems[0]))
        with formatter.section("Commands"):
            formatter.write_dl(lines)
        if unused:
            with formatter.section("Not in use"):
                formatter.write_dl(unused)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names without loading what they stand for: click would load each command to see whether it is hidden."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return names or super().shell_complete(ctx, incomplete)

    def _installed(self) -> tuple[InstalledCommand, ...]:
        from tensorhub_contracts.commands.installed import installed_commands  # reads the metadata of all distributions

        return installed_commands(_BUILT_IN)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tensorhub-contracts")
def tensorhub() -> None:
    """Named, versioned tensor layouts: what a checkpoint is in, proved.

    Exit codes: 0 satisfied, 1 refused, 2 usage, 3 a fault of this tool or of a plugin.
    """


def main() -> NoReturn:
    """Run the command line and exit."""
    is_ours()
    code, message = _run()
    if message:
        with contextlib.suppress(OSError):  # where nothing can be said, the exit code still says it
            click.echo(message, err=True)
    sys.exit(code)


def _run() -> tuple[int | None, str]:
    """Run the command line; return the exit code, and what is to be said on standard error."""
    try:
        return tensorhub.main(prog_name="tensorhub", standalone_mode=False), ""
    except click.ClickException as error:
        return error.exit_code, _usage_text(error)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED, ""
    except Refusal as refusal:
        return EXIT_REFUSED, str(refusal)
    except PluginSelectionError as error:
        return EXIT_USAGE, _usage_text(click.UsageError(str(error)))
    except OutputError as error:
        _write_no_more()
        return EXIT_FAULT, f"Error: {error}\n{_NOT_SAID}"
    except FaultError as error:
        return EXIT_FAULT, f"{_FAULT_TITLES.get(type(error).__name__, 'A fault')}:\n{error}\n{_FAULT}"
    except Exception:
        import traceback  # a fault has time for it, a start has not

        return EXIT_FAULT, f"{traceback.format_exc()}{_FAULT} Please report it with the lines above."


def _usage_text(error: click.ClickException) -> str:
    """Return what click would print: the usage of the command and what is wrong with it."""
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip("\n")


def console() -> NoReturn:
    """Run the command line as the console script does, and end the process; see `end_process`."""
    gc.disable()  # imports make no cycles worth looking for; whatever may run for long enables it again
    try:
        main()
    except SystemExit as end:
        if end.code is not None and type(end.code) is not int:
            raise  # a plugin's last words, which Python prints
        from tensorhub_contracts.commands.ending import end_process

        end_process((end.code or 0) & 0xFF, sys._getframe(1))

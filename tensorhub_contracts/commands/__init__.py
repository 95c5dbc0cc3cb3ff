"""The command line, `tensorhub`. Each command is a module that is imported when the command is used.

Exit codes: 0 satisfied, 1 refused, 2 usage, 3 a fault of ours or of a plugin.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

from tensorhub_contracts._version import __version__
from tensorhub_contracts.errors import FaultError, PluginError, PluginSelectionError, Refusal

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tensorhub_contracts.commands.installed import InstalledCommand

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FAULT: Final = 3

#: As shells count them: ended by Ctrl-C, and by a reader who had gone. Neither says anything of the checkpoint.
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141

_FAULT: Final = "This is a fault of tensorhub-contracts or of a plugin, not of your checkpoint."

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


class _Commands(click.Group):
    """Imports a command when it is invoked, so that inspect loads nothing that it does not need, and scans no metadata."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_BUILT_IN, *dict.fromkeys(each.name for each in self._installed() if each.name not in _BUILT_IN)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _BUILT_IN:
            command: click.Command = importlib.import_module(f"{__name__}.{_BUILT_IN[name][0]}").command
            return command
        from tensorhub_contracts.commands.installed import load_command

        gc.enable()  # a command of another distribution may run for hours
        return next((load_command(each) for each in self._installed() if each.name == name), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from tensorhub_contracts.commands.installed import load_command

        lines = [(name, line) for name, (_, line) in _BUILT_IN.items()]
        unused = []
        for each in self._installed():
            try:
                lines.append((each.name, load_command(each).get_short_help_str(limit=80)))
            except PluginError as error:
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
    try:
        code = tensorhub.main(prog_name="tensorhub", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to flush
        code = EXIT_UNREAD
    except Refusal as refusal:
        click.echo(str(refusal), err=True)
        code = EXIT_REFUSED
    except PluginSelectionError as error:
        click.UsageError(str(error)).show()
        code = EXIT_USAGE
    except FaultError as error:
        click.echo(f"{_FAULT_TITLES.get(type(error).__name__, 'A fault')}:\n{error}\n{_FAULT}", err=True)
        code = EXIT_FAULT
    except Exception:
        import traceback  # a fault has time for it, a start has not

        traceback.print_exc()
        click.echo(f"{_FAULT} Please report it with the lines above.", err=True)
        code = EXIT_FAULT
    sys.exit(code)


def console() -> NoReturn:
    """Run the command line as the console script does, and end the process at once.

    Taking two hundred modules apart takes longer than proving a contract. What is registered for the end of the process
    runs, and what was written is flushed, before it ends.
    """
    gc.disable()  # imports make no cycles worth looking for; whatever may run for long enables it again
    code = EXIT_FAULT
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0  # a command that returns gives None
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or EXIT_UNREAD  # the reader has gone
        except OSError as error:
            code = code or EXIT_FAULT
            os.write(2, f"tensorhub: the output could not be written: {error.strerror}\n".encode())
    os._exit(code)

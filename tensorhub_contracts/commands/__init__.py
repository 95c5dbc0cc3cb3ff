"""The command line, `tensorhub`. Each command is a module that is imported when the command is used.

Exit codes: 0 satisfied, 1 refused, 2 usage, 3 a fault of ours or of a plugin.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final, NoReturn

import click

from tensorhub_contracts._version import __version__
from tensorhub_contracts.errors import FaultError, PluginSelectionError, Refusal

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FAULT: Final = 3

#: As shells count them: ended by Ctrl-C, and by a reader who had gone. Neither says anything of the checkpoint.
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141

_FAULT: Final = "This is a fault of tensorhub-contracts or of a plugin, not of your checkpoint."

_FAULT_TITLES: Final = {"RegistryError": "The registry is wrong", "PluginError": "The plugins are wrong"}

#: Command name to the module that defines it (as `command`) and the line that --help shows for it. A module of another
#: package is given by its whole name: the commands that compute lie beside the decoders, and are met by name alone.
_COMMANDS: Final = {
    "inspect": ("inspect", "Prove which contract a checkpoint is in, from its headers alone."),
    "artifact": ("artifact", "Write the record of a proved checkpoint that a hub stores."),
    "plugins": ("plugins", "List the plugins of this environment, and why one is not in use."),
    "lanes": ("lanes", "Derive what this environment can execute, or compare it with a record."),
    "satisfies": ("satisfies", "Say whether an image can execute an artifact."),
    "produce": ("tensorhub_decoders.commands.produce", "Quantize an unquantized checkpoint into an FP8 contract."),
    "decode": ("tensorhub_decoders.commands.decode", "Make an unquantized checkpoint of one in an FP8 contract."),
    "kernels": ("tensorhub_decoders.commands.kernels", "List the CUDA kernels, or build them ahead of time for an image."),
    "doctor": ("tensorhub_decoders.commands.doctor", "Say what CUDA kernels find here, and what does not fit together."),
    "contracts": ("contracts", "List the contracts of the registry, or show one."),
    "explain": ("explain", "Explain a refusal code."),
    "schema": ("schema", "Print the JSON Schema of something that this tool reads or writes."),
    "completion": ("completion", "Print the script that completes tensorhub in your shell."),
}


class _Commands(click.Group):
    """Imports a command when it is invoked, so that --help and inspect load nothing that they do not need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module_name = _COMMANDS[name][0]
        module = importlib.import_module(module_name if "." in module_name else f"{__name__}.{module_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


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

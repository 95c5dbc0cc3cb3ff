"""The console script ends its process at once, and loses nothing by it: output, exit handlers, exit codes, profilers, what plugins left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import PATIENCE, TENSORHUB, environment, tensorhub
from tests.support.environments import metadata_folder

#: Runs the console script's function as the script does, below nothing, after what stands before it.
AS_THE_SCRIPT = "\nfrom tensorhub_contracts.commands import console\nconsole()\n"

#: Says whether the interpreter takes its modules apart: what a module holds is deleted then, and only then.
TAKEN_APART = "import os\nclass Last:\n    def __del__(self, write=os.write): write(2, b'taken apart')\nlast = Last()\n"

COMMANDS = """
import sys, threading, time
import click

def command(function):
    return click.command()(function)

@command
def says():
    sys.exit("last words")

@command
def returns():
    return 5

@command
def exits():
    click.get_current_context().exit(7)

@command
def threads():
    threading.Thread(target=lambda: (time.sleep(0.3), print("from a thread"))).start()

@command
def keeps():
    global kept
    kept = open("kept", "w")
    kept.write("written")
"""


def buffered(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which Python buffers what it writes, as it does by default."""
    return {name: value for name, value in environment(changes).items() if name != "PYTHONUNBUFFERED"}


def script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=buffered(), timeout=PATIENCE, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("acme")
    names = ("says", "returns", "exits", "threads", "keeps")
    metadata_folder(folder, "acme", entry_points="[tensorhub.commands]\n" + "".join(f"{each} = acme_end:{each}\n" for each in names))
    (folder / "acme_end.py").write_text(COMMANDS)
    return folder


def shell(line: str) -> int:
    """Run a line of a shell; return the exit code of its first command.

    $T is the executable, and $GONE a reader that has gone before the first byte is written.
    """
    line = line.replace("$T", "(sleep 0.3; exec $T", 1).replace(" | $GONE", ") | true; exit ${PIPESTATUS[0]}") if "$GONE" in line else line
    return subprocess.run(["bash", "-c", line], env=buffered({"T": str(TENSORHUB)}), stdout=subprocess.DEVNULL, timeout=PATIENCE).returncode


def test_the_process_ends_without_taking_its_modules_apart() -> None:
    ended = script(TAKEN_APART + AS_THE_SCRIPT, "explain", "scale-grid")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("scale-grid")
    assert "taken apart" in script(TAKEN_APART).stderr  # it would be seen


def test_exit_handlers_run_and_what_they_print_is_written() -> None:
    ended = script("import atexit\natexit.register(lambda: print('handled'))" + AS_THE_SCRIPT, "explain", "scale-grid")
    assert ended.returncode == 0
    assert ended.stdout.startswith("scale-grid")
    assert ended.stdout.endswith("handled\n")


@pytest.mark.parametrize(("arguments", "code"), [(("--version",), 0), (("explain", "no-such-code"), 2), (("inspect", "/dev/null"), 4)])
def test_every_exit_code_arrives(arguments: tuple[str, ...], code: int) -> None:
    assert tensorhub(*arguments).code == code
    assert script(AS_THE_SCRIPT, *arguments).returncode == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$T --version >&-", 0),
        ("$T --version 2>&-", 0),
        ("$T explain >/dev/full", 3),
        ("$T explain no-such-code 2>/dev/full", 2),
        ("$T explain | $GONE", 141),
        ("$T --help | $GONE", 141),
        ("$T produce --help | $GONE", 141),
    ],
)
def test_output_that_cannot_be_written_changes_no_other_code(line: str, code: int) -> None:
    assert shell(line) == code


@pytest.mark.parametrize("handler", ["", "import atexit; atexit.register(print, 'late')\n"], ids=["earlier", "by an exit handler"])
@pytest.mark.parametrize(("place", "code"), [("/dev/full", 3), ("/dev/null", 0)])
def test_what_is_buffered_until_the_end_decides_too(place: str, code: int, handler: str) -> None:
    """Nobody looks after it but the end of the process, which must not leave it to the interpreter: that exits with 120."""
    early = "" if handler else "print('early', end='')\n"
    text = f"import os\nos.dup2(os.open({place!r}, os.O_WRONLY), 1)\n{early}{handler}"
    silent = "from tensorhub_contracts import commands\nfrom sys import exit as main\ncommands.main = lambda: main(0)\n"
    assert script(text + silent + AS_THE_SCRIPT).returncode == code


def test_a_profiler_that_runs_the_script_gets_its_return(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cProfile", "-o", tmp_path / "profile", TENSORHUB, "explain", "scale-grid"]
    assert subprocess.run(command, capture_output=True, env=environment(), timeout=PATIENCE).returncode == 0
    assert (tmp_path / "profile").stat().st_size > 0


@pytest.mark.parametrize(("name", "code", "out", "err"), [
    ("says", 1, "", "last words\n"),
    ("returns", 0, "", ""),
    ("exits", 7, "", ""),
    ("threads", 0, "from a thread\n", ""),
    ("keeps", 0, "", ""),
])  # fmt: skip
def test_a_plugins_command_ends_as_python_ends_it(plugin: Path, tmp_path: Path, name: str, code: int, out: str, err: str) -> None:
    done = tensorhub(name, cwd=tmp_path, env={"PYTHONPATH": str(plugin)})
    assert (done.code, done.out, done.err) == (code, out, err)
    if name == "keeps":
        assert (tmp_path / "kept").read_text() == "written"

"""Runs the real `tensorhub` in a process of its own: with pipes, or with a pseudo-terminal in their place."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: The executable that the distribution installs beside this interpreter.
TENSORHUB = Path(sys.executable).with_name("tensorhub")

#: A process that waits for longer than this hangs.
PATIENCE = 30


@dataclass(frozen=True)
class Run:
    """What a process left behind; on a terminal, `terminal` holds what it wrote there and the other two are what it did not."""

    code: int
    out: str
    err: str
    terminal: str = ""


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which nothing but the stream decides on colours and bars."""
    silent = {"NO_COLOR", "FORCE_COLOR", "CI", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "PYTEST_CURRENT_TEST"}
    kept = {name: value for name, value in os.environ.items() if name not in silent}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "200", "LC_ALL": "C.UTF-8", **(changes or {})}


def tensorhub(*arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Run:
    """Run the executable with pipes for all streams."""
    done = subprocess.run(
        [TENSORHUB, *map(str, arguments)], capture_output=True, cwd=cwd, env=environment(env), timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    return Run(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def on_a_terminal(*command: str | Path, out: bool = False) -> Run:
    """Run a command with standard error on a pseudo-terminal, and with `out` standard output too."""
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=slave if out else subprocess.PIPE,
            stderr=slave,
            env=environment(),
        )
    finally:
        os.close(slave)
    written = bytearray()
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    piped, _ = process.communicate(timeout=PATIENCE)
    return Run(process.returncode, (piped or b"").decode(), "", written.decode())

"""CPU time of whole processes, user and system, interleaved: what a neighbour on the machine changes least."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

#: What a command costs, part by part: each runs in an interpreter that ends at once.
_PARTS = {
    "starting and ending an interpreter at once": "",
    "+ importing click and msgspec": "import click, msgspec",
    "+ importing attrs": "import click, msgspec, attrs",
    "+ importing what inspects and reports": "import tensorhub_contracts.commands.inspect, tensorhub_contracts.reports.text",
    "+ reading the registry": "import tensorhub_contracts.commands.inspect, tensorhub_contracts.reports.text\n"
    "from tensorhub_contracts import installed_registry\ninstalled_registry()",
    "+ inspecting": "import tensorhub_contracts.commands.inspect, tensorhub_contracts.reports.text\n"
    "from tensorhub_contracts import inspect\ninspect({tree!r})",
    "+ reporting as text": "import tensorhub_contracts.commands.inspect, tensorhub_contracts.reports.text\n"
    "from tensorhub_contracts import inspect\ntensorhub_contracts.reports.text.write([inspect({tree!r})])",
}


def print_start(tool: str, tree: str) -> None:
    """Print what `tensorhub inspect` costs beside an empty interpreter, and what the parts of it do."""
    python = sys.executable
    slowly = "from tensorhub_contracts.commands import main; main()"
    whole = {
        "an empty interpreter": [python, "-c", "pass"],
        "tensorhub inspect": [tool, "inspect", tree],
        "the same, ending as any Python process": [python, "-c", slowly, "inspect", tree],
    }
    parts = {name: [python, "-c", f"import gc, os\ngc.disable()\n{code.format(tree=tree)}\nos._exit(0)"] for name, code in _PARTS.items()}
    seconds = least_cpu_seconds({**whole, **parts}, rounds=25)
    empty = seconds["an empty interpreter"]
    ratio = seconds["tensorhub inspect"] / empty
    print(f"### The whole process, 27.6 GB: CPU time, the least of 25 rounds; ratio {ratio:.1f}, goal at most 8.5\n")
    print("| | CPU ms | empty interpreters |\n|---|---:|---:|")
    for name, value in seconds.items():
        print(f"| {name} | {value * 1e3:.1f} | {value / empty:.2f} |")
    print()


def least_cpu_seconds(commands: Mapping[str, Sequence[str]], *, rounds: int) -> dict[str, float]:
    """Run each command in turn, `rounds` times; return the least CPU time of each, in seconds. A command must succeed."""
    least = dict.fromkeys(commands, float("inf"))
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    for _ in range(rounds):
        for name, command in commands.items():
            process = os.posix_spawn(command[0], command, os.environ, file_actions=silent)
            _, status, used = os.wait4(process, 0)
            if status:
                raise SystemExit(f"{name}: {' '.join(command)} failed with {os.waitstatus_to_exitcode(status)}")
            least[name] = min(least[name], used.ru_utime + used.ru_stime)
    return least

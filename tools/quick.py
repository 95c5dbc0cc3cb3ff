"""`make quick`: the tests of what changed, or a fast subset, within a minute on two cores.

What changed is what differs from the commit where this branch left `main` (`BASE=` names another commit), committed or not. A
changed test file runs first, then the tests of each changed room, those that say most of it first; what concerns no room runs
the fast subset. When the time is over, no further test is started, and what was left out is named, file by file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

#: Seconds after which no test is started: the slowest one that runs then takes 13 more, on a machine with little else to do.
BUDGET: Final = 35

#: Which tests a room has, those that say most of it first: folders, files or patterns. The first prefix that fits counts.
ROOMS: Final = {
    "tensorhub_contracts/checkpoints": ("tests/containers", "tests/attacks", "tests/layouts"),
    "tensorhub_contracts/registry": ("tests/registry", "tests/layouts"),
    "tensorhub_contracts/inspection": ("tests/inspecting", "tests/layouts", "tests/registry", "tests/containers", "tests/reports"),
    "tensorhub_contracts/plugins/declaring": ("tests/decoders/test_declaration*.py", "tests/plugins"),
    "tensorhub_contracts/plugins": ("tests/registry", "tests/plugins"),
    "tensorhub_contracts/lanes": (
        "tests/plugins/test_lanes*.py",
        "tests/decoders/test_requirements.py",
        "tests/satisfies",
        "tests/goldens",
    ),
    "tensorhub_contracts/hub": ("tests/goldens", "tests/satisfies"),
    "tensorhub_contracts/commands": ("tests/commands", "tests/satisfies", "tests/reports"),
    "tensorhub_contracts/reports": ("tests/reports", "tests/commands"),
    "tensorhub_contracts/testing": ("tests/testing", "tests/decoders/test_conformance.py"),
    "tensorhub_contracts/exact_arithmetic": ("tests/decoders/test_exact_arithmetic.py", "tests/decoders/test_subnormal_numbers.py"),
    "tensorhub_contracts/loading": ("tests/decoders/test_loading*.py", "tests/decoders"),
    "tensorhub_contracts": ("tests/registry", "tests/commands", "tests/layouts", "tests/satisfies"),
    "registry.toml": ("tests/registry", "tests/layouts"),
    "decoders/tensorhub_decoders/commands": (
        "tests/producing/test_produce*.py",
        "tests/producing/test_decode*.py",
        "tests/kernels/test_kernel_commands.py",
    ),
    "decoders/tensorhub_decoders/converting": ("tests/producing/test_quantizer*.py", "tests/producing/test_produce*.py", "tests/producing"),
    "decoders/tensorhub_decoders/resident": ("tests/resident", "tests/decoders", "tests/models"),
    "decoders/tensorhub_decoders/transformers_models": ("tests/decoders/test_placement*.py", "tests/models"),
    "decoders": (
        "tests/decoders/test_upcast*.py",
        "tests/decoders/test_conformance.py",
        "tests/decoders",
        "tests/resident",
        "tests/producing",
    ),
    "cuda/tensorhub_cuda/environment": ("tests/kernels/test_environment.py", "tests/kernels/test_kernel_commands.py"),
    "cuda/tensorhub_cuda/launch": ("tests/kernels/test_kernel_choice.py", "tests/kernels/test_operand_rules.py", "tests/kernels/test_*.py"),
    "cuda/tensorhub_cuda/nvrtc": ("tests/kernels/kernel_cache", "tests/kernels/nvrtc"),
    "cuda": ("tests/kernels/test_kernel_choice.py", "tests/kernels/test_oracle.py", "tests/kernels"),
    "tools": ("tests/tools/test_[!m]*.py", "tests/tools"),
}

#: What runs whatever changed.
ALWAYS: Final = ("tests/architecture",)

#: What runs where no room changed.
FAST: Final = ("tests/registry", "tests/reports", "tests/goldens", "tests/layouts", "tests/commands")


def main() -> int:
    """Choose, say what was chosen, and run pytest until the time is over; return its exit code."""
    started = time.time()
    changed = changed_files(os.environ.get("BASE") or base())
    files = choose(changed)
    folders = ", ".join(dict.fromkeys(file.rpartition("/")[0] for file in files))
    print(f"{len(changed)} changed files; {len(files)} test files of {folders}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "tools.quick_deadline", f"--deadline={started + BUDGET}"]
    code = subprocess.run([*command, *files], cwd=ROOT, check=False).returncode
    print(f"{time.time() - started:.0f} s")
    return code


def base() -> str:
    """Return the commit where this branch left `main`, or the commit before this one where nothing has left it."""
    for main_branch in ("origin/main", "main"):
        found = _git("merge-base", "HEAD", main_branch)
        if found and (found != _git("rev-parse", "HEAD") or changed_files(found[0])):
            return found[0]
    return "HEAD~1" if _git("rev-parse", "--verify", "-q", "HEAD~1") else "HEAD"


def changed_files(commit: str) -> list[str]:
    """Return the paths that differ from a commit, and those that git does not know yet."""
    return _git("diff", "--name-only", commit) + _git("ls-files", "--others", "--exclude-standard")


def choose(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the test files to run for changed paths, in the order in which they are run."""
    changed = list(changed)
    rooms = [room for path in changed if (room := _room_of(path))]
    own = [path for path in changed if path.startswith("tests/") and Path(path).match("test_*.py")]
    by_worth = [tests for row in zip_longest(*rooms) for tests in row if tests]
    wanted = [*own, *ALWAYS, *(by_worth or ([] if own else FAST))]
    return list(dict.fromkeys(file for each in wanted for file in files_of(each, root)))


def files_of(named: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the test files that a folder, a file or a pattern names, those of a folder below it last."""
    for path in sorted(root.glob(named)):
        found = sorted(path.rglob("test_*.py"), key=lambda file: (len(file.parts), file)) if path.is_dir() else [path]
        yield from (file.relative_to(root).as_posix() for file in found)


def _room_of(path: str) -> Sequence[str]:
    return next((tests for room, tests in ROOMS.items() if path in (room, f"{room}.py") or path.startswith(f"{room}/")), ())


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())

"""`make quick`: the tests of what changed, or a fast subset, within a minute on two cores.

What changed is what differs from the commit before (`BASE=` names another) or is not committed. A change of a room runs the
test folders of that room; a change of a test file runs it; what concerns no room runs the fast subset. Folders that take
longer than the minute leaves are named, and left to `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

#: Seconds that a test folder takes on two cores, as measured; others are fast.
SECONDS: Final = {
    "tests/layouts": 14, "tests/containers": 10, "tests/registry": 10, "tests/attacks": 18, "tests/commands": 25, "tests/reports": 4,
    "tests/satisfies": 10, "tests/goldens": 4, "tests/testing": 12, "tests/decoders": 60, "tests/producing": 90, "tests/models": 150,
    "tests/plugins": 130, "tests/kernels": 400, "tests/tools": 20, "tests/architecture": 4,
}  # fmt: skip  # a table

#: Which test folders a room has, in the order of what they say of it; the first prefix that fits counts.
ROOMS: Final = {
    "tensorhub_contracts/checkpoints": ("tests/containers", "tests/attacks"),
    "tensorhub_contracts/registry": ("tests/registry", "tests/layouts"),
    "tensorhub_contracts/inspection": ("tests/layouts", "tests/containers", "tests/reports"),
    "tensorhub_contracts/plugins": ("tests/registry", "tests/testing", "tests/plugins"),
    "tensorhub_contracts/lanes": ("tests/satisfies", "tests/goldens", "tests/plugins"),
    "tensorhub_contracts/hub": ("tests/satisfies", "tests/goldens"),
    "tensorhub_contracts/commands": ("tests/commands", "tests/reports"),
    "tensorhub_contracts/reports": ("tests/reports", "tests/commands"),
    "tensorhub_contracts/testing": ("tests/testing",),
    "tensorhub_contracts/loading": ("tests/decoders",),
    "tensorhub_contracts": ("tests/registry", "tests/layouts", "tests/satisfies"),
    "decoders/tensorhub_decoders/converting": ("tests/producing",),
    "decoders/tensorhub_decoders/transformers_models": ("tests/models",),
    "decoders": ("tests/decoders",),
    "cuda": ("tests/kernels/test_kernel_choice.py", "tests/kernels/kernel_cache", "tests/kernels"),
    "tools": ("tests/tools",),
    "registry.toml": ("tests/registry", "tests/layouts"),
}

#: What runs whatever changed.
ALWAYS: Final = ("tests/architecture",)

FAST: Final = ("tests/registry", "tests/layouts", "tests/reports")

BUDGET: Final = 45


def main() -> int:
    """Choose, say what was chosen and what was left out, and run pytest."""
    changed = list(changed_files(os.environ.get("BASE", "HEAD")))
    chosen, left = choose(changed)
    print(f"changed: {len(changed)} files; running {' '.join(chosen)}" + (f"; left to `make test`: {' '.join(left)}" if left else ""))
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", *chosen], cwd=ROOT, check=False).returncode


def changed_files(base: str) -> Iterator[str]:
    """Yield the paths that differ from a commit, and those that are new; with nothing changed, what the last commit changed."""
    found = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    yield from found or _git("diff", "--name-only", f"{base}~1", base)


def choose(changed: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the test files and folders to run for changed paths, and those that there is no time for."""
    wanted: dict[str, None] = dict.fromkeys(ALWAYS)
    rooms = [folders for path in changed if (folders := _room_of(path))]
    for path in changed:
        if path.startswith("tests/") and Path(path).name.startswith("test_") and (ROOT / path).is_file():
            wanted[path] = None
    for place in range(max(map(len, rooms), default=0)):
        wanted.update(dict.fromkeys(folders[place] for folders in rooms if place < len(folders)))
    if len(wanted) == len(ALWAYS):
        wanted.update(dict.fromkeys(FAST))
    chosen, left, seconds = [], [], 0
    for each in wanted:
        if any(each.startswith(folder + "/") for folder in chosen):
            continue
        cost = SECONDS.get(each, 3)
        (chosen if seconds + cost <= BUDGET else left).append(each)
        seconds += cost if seconds + cost <= BUDGET else 0
    return chosen, left


def _room_of(path: str) -> tuple[str, ...]:
    return next((folders for prefix, folders in ROOMS.items() if path in (prefix, f"{prefix}.py") or path.startswith(prefix + "/")), ())


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())

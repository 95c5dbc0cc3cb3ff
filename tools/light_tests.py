"""`make test-light`: the tests that need no torch, on the Python that runs this; what is left out is named, with its reason."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

LIGHT: Final = (
    "tests/registry", "tests/layouts", "tests/inspecting", "tests/containers", "tests/attacks", "tests/commands", "tests/reports",
    "tests/satisfies", "tests/goldens", "tests/architecture",
)  # fmt: skip  # a list

#: What is left out: these run on the Python of `make test` alone.
LEFT_OUT: Final = {
    "tests/plugins": "installs distributions for minutes, and in test_life_of_a_plugin.py into each other Python anyway",
    "tests/decoders": "decodes with torch",
    "tests/resident": "multiplies with torch",
    "tests/producing": "quantizes with torch",
    "tests/models": "loads models of transformers",
    "tests/kernels": "compares kernels with torch",
    "tests/testing": "compares wrong decoders with torch",
    "tests/tools": "runs the tools of this repository, which users do not have",
}


def main(arguments: list[str]) -> int:
    """Say what runs and what does not, and run it; return pytest's exit code. Arguments are pytest's."""
    print(f"Python {platform.python_version()} runs {' '.join(LIGHT)}")
    print("\n".join(f"  left out: {folder}, which {reason}" for folder, reason in LEFT_OUT.items()), flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments, *LIGHT], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Builds the wheel and installs it, and the tree for editing, into environments of their own: both must find the registry.

Run by `make check`. A script and not a test, because it builds and installs, which takes longer than all tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHIPPED_PLUGINS = 4
SOURCES = "from tensorhub_cuda.catalog import KERNELS, read_source; print(sum('KERNEL(' in read_source(each) for each in KERNELS))"
PROBE = "import tensorhub_contracts as t; print(len(t.installed_registry().contracts), t.inspect.__module__)"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command, show what it printed if it fails, and return its standard output."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def install_and_probe(environment: Path, *arguments: str | Path) -> None:
    """Make an environment, install into it, and run the command line and the API from a folder that holds no source."""
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "-qq", "install", "-c", ROOT / "constraints.txt", *arguments)
    contracts = run(python, "-c", PROBE, cwd=environment)
    listed = run(environment / "bin" / "tensorhub", "contracts", cwd=environment)
    shown = run(environment / "bin" / "tensorhub", "explain", "scale-grid", cwd=environment)
    if int(contracts.split()[0]) != len(listed.splitlines()) or "scale-grid" not in shown:
        sys.exit(f"{environment.name}: the registry or the codes are incomplete:\n{contracts}{listed}{shown}")
    imported = run(python, "-c", "import tensorhub_decoders, tensorhub_cuda; print(tensorhub_cuda.__name__)", cwd=environment)
    if imported.strip() != "tensorhub_cuda":
        sys.exit(f"{environment.name}: the three packages do not import: {imported}")
    kernels = json.loads(run(environment / "bin" / "tensorhub", "kernels", "list", "--output", "json", cwd=environment))["kernels"]
    sources = int(run(python, "-c", SOURCES, cwd=environment))
    if not kernels or sources != len(kernels):
        sys.exit(f"{environment.name}: {sources} of {len(kernels)} kernels have their sources")
    plugins = json.loads(run(environment / "bin" / "tensorhub", "plugins", "--strict", "--output", "json", cwd=environment))["plugins"]
    if len(plugins) != SHIPPED_PLUGINS or any(each["state"] != "loaded" or each["notes"] for each in plugins):
        sys.exit(f"{environment.name}: the shipped plugins are not all loaded, and quietly: {plugins}")
    print(f"{environment.name}: {contracts.split()[0]} contracts, {len(plugins)} plugins, {len(kernels)} kernels")


def main() -> None:
    """Build, check the content, and install both ways."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--sdist", "--no-isolation", "--outdir", scratch / "dist", ROOT)
        (wheel,) = (scratch / "dist").glob("*.whl")
        print(
            run(
                Path(sys.executable).with_name("check-wheel-contents"),
                "--toplevel",
                "tensorhub_contracts,tensorhub_cuda,tensorhub_decoders",
                wheel,
            ).strip()
        )
        install_and_probe(scratch / "wheel-install", wheel)
        install_and_probe(scratch / "editable-install", "-e", ROOT)


if __name__ == "__main__":
    main()

"""Builds the wheel of the plugin template, installs it into a clean environment, and looks at everything that it promises.

Run by `make check`. A script and not a test, because it installs torch, which takes longer than all tests.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CONTRACT = "acme.int8-channel@1"


class Environment:
    """A virtual environment and a folder that holds no source."""

    def __init__(self, scratch: Path) -> None:
        self.folder = scratch / "work"
        self.folder.mkdir()
        self.binaries = scratch / "environment" / "bin"
        run(sys.executable, "-m", "venv", scratch / "environment")

    def pip(self, *arguments: str | Path) -> None:
        run(self.binaries / "python", "-m", "pip", "--disable-pip-version-check", "-qq", *arguments)

    def tensorhub(self, *arguments: str | Path, code: int = 0) -> str:
        """Run the command line; it must exit with `code`."""
        return run(self.binaries / "tensorhub", *arguments, cwd=self.folder, code=code)

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        return json.loads(self.tensorhub(*arguments, "--output", "json", code=code))


def run(*command: str | Path, cwd: Path | None = None, code: int = 0) -> str:
    """Run a command, show what it printed if it does not exit with `code`, and return its standard output."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, command))} exited with {done.returncode}, not {code}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def expect(what: str, found: object, expected: object) -> None:
    """Stop with both values if they differ."""
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")
    print(f"  {what}: {found}", flush=True)


def write_checkpoint(folder: Path, scale_shape: list[int]) -> Path:
    """Write a checkpoint of the template's contract, or with another shape of the scale one that is not."""
    folder.mkdir()
    count = 4 if scale_shape == [4] else 8
    header = {
        "proj.weight": {"dtype": "I8", "shape": [4, 6], "data_offsets": [0, 24]},
        "proj.weight_scale": {"dtype": "F32", "shape": scale_shape, "data_offsets": [24, 24 + 4 * count]},
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(range(24)) + struct.pack("<f", 0.5) * count)
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "acme-int8"}}), "utf-8")
    return folder


def check_installed(environment: Environment) -> None:
    """Plugins, lanes, inspection, verdicts: with the plugin, all of them know the layout."""
    (plugin,) = [each for each in environment.json("plugins")["plugins"] if not each["shipped"]]
    expect("plugin", (plugin["name"], plugin["version"], plugin["state"], plugin["owns"]), ("acme-int8", "0.1.0", "loaded", [CONTRACT]))
    lanes = environment.json("lanes")
    expect("lanes", [lane for lane in lanes["lanes_beyond_table"] if lane.startswith("int8")], ["int8-w8a16+eager", "int8-w8a16+compiled"])
    sound = write_checkpoint(environment.folder / "sound", [4])
    wrong = write_checkpoint(environment.folder / "wrong", [4, 2])
    (inspection,) = environment.json("inspect", sound)["inspections"]
    expect("inspection", inspection["contract"]["handle"], CONTRACT)
    (refused,) = environment.json("inspect", wrong, code=1)["inspections"]
    expect("refused inspection", {each["object"] for each in refused["violations"]}, {"proj.weight_scale"})
    decoded = environment.json("decode", sound, environment.folder / "decoded", "--to", "plain.bf16@1")
    expect("decoded", (decoded["contract"], decoded["decoded"]), ("plain.bf16@1", ["proj.weight"]))
    environment.tensorhub("lanes", "--output", "json=lanes.json")
    environment.tensorhub("artifact", sound, "--output", "json=artifact.json")
    verdict = environment.json("satisfies", "artifact.json", "--image", "lanes.json", "--accept", CONTRACT)
    expect("satisfied", verdict["components"][0]["lane"], "int8-w8a16+eager")
    problem = environment.json("satisfies", "artifact.json", "--image", "lanes.json", "--lane", "fp8", code=1)
    expect("refused", (problem["status"], problem["code"], problem["retryable"]), (422, "lane-unavailable", False))


def check_uninstalled(environment: Environment) -> None:
    """Without the plugin, the layout is unknown everywhere, and the same image no longer satisfies the artifact."""
    expect("plugins left", [each for each in environment.json("plugins")["plugins"] if not each["shipped"]], [])
    expect("lanes left", [lane for lane in environment.json("lanes")["lanes_beyond_table"] if lane.startswith("int8")], [])
    (inspection,) = environment.json("inspect", environment.folder / "sound", code=1)["inspections"]
    expect("inspection", inspection["accepted"], False)
    environment.tensorhub("lanes", "--output", "json=lanes.json")
    problem = environment.json("satisfies", "artifact.json", "--image", "lanes.json", code=1)
    expect("refused", problem["code"], "contract-not-declared")


def main() -> None:
    """Build both wheels, install, check, uninstall, check again."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for project in (ROOT, ROOT / "template"):
            run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch / "wheels", project)
        environment = Environment(scratch)
        wheels = sorted((scratch / "wheels").glob("*.whl"))
        environment.pip("install", "-c", ROOT / "constraints.txt", "torch==2.13.0", "numpy", "pytest", *wheels)
        print("with the plugin", flush=True)
        check_installed(environment)
        (environment.folder / "test_conformance.py").write_text((ROOT / "template" / "tests" / "test_conformance.py").read_text("utf-8"))
        tests = run(environment.binaries / "python", "-m", "pytest", "-q", "-ra", environment.folder, cwd=environment.folder)
        expect("conformance", "failed" in tests or "skipped" in tests, False)
        print(f"  {tests.splitlines()[-1]}", flush=True)
        environment.pip("uninstall", "-y", "acme-int8")
        print("without it", flush=True)
        check_uninstalled(environment)


if __name__ == "__main__":
    main()

"""Builds wheels of small generated projects, installs them with pip, and runs what is then installed in processes of their own.

Plugins are installed into folders that stand on PYTHONPATH in a chosen order, beside an environment that holds this project's own
wheel and its dependencies. No entry point is ever pretended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hatchling.builders.wheel import WheelBuilder

from tests.support.cli import Run, environment

ROOT = Path(__file__).parents[2]

#: A process that runs for longer than this hangs; an installation may download.
PATIENCE = 60
INSTALL_PATIENCE = 300

#: Runs the pip of this interpreter on one list of arguments after the other: most of a call's time is pip's own import.
_PIP_LOOP = """
import json, sys
from pip._internal.cli.main import main
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    print(main(json.loads(line)), file=answers, flush=True)
"""

_MAIN = "from tensorhub_contracts.commands import main; main()"


@dataclass(frozen=True)
class Project:
    """A distribution that does not exist yet: its entry points in a group, by default that of decoders, and its files below `src`."""

    name: str
    entry_points: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    version: str = "1.0"
    group: str = "tensorhub.decoders"

    def write(self, folder: Path) -> Path:
        """Write the source tree and return its folder."""
        for path, text in self.files:
            file = folder / "src" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        lines = [
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n',
            f'[project]\nname = "{self.name}"\nversion = "{self.version}"\n',
            f'[project.entry-points."{self.group}"]' if self.entry_points else "",
            *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in self.entry_points),
            '\n[tool.hatch.build]\ndev-mode-dirs = ["src"]',
            '\n[tool.hatch.build.targets.wheel]\nonly-include = ["src"]\nsources = ["src"]\nbypass-selection = true\n',
        ]
        (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
        return folder


def project(
    name: str, entry_points: Mapping[str, str], files: Mapping[str, str], version: str = "1.0", group: str = "tensorhub.decoders"
) -> Project:
    """Return a project; `files` maps paths such as `acme.py` to their text."""
    return Project(name, tuple(entry_points.items()), tuple(files.items()), version, group)


def build_wheel(source: Path, into: Path) -> Path:
    """Build the wheel of a source tree."""
    (wheel,) = WheelBuilder(str(source)).build(directory=str(into), versions=["standard"])
    return Path(wheel)


def run(*command: str | Path, cwd: Path, env: Mapping[str, str], patience: float = PATIENCE) -> Run:
    """Run a command with pipes for all streams, without what this process has on its own path."""
    inherited = {
        key: value for key, value in environment().items() if key not in ("PYTHONPATH", "TENSOR_CONTRACTS_PLUGINS", "PYTHONHASHSEED")
    }
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        cwd=cwd,
        env={**inherited, **env},
        timeout=patience,
        stdin=subprocess.DEVNULL,
    )
    return Run(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds this project's wheel; `elsewhere` is an empty folder to run in."""

    folder: Path
    elsewhere: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = (self.folder / "lib").glob("python3.*/site-packages")
        return found

    def pip(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Run pip on this environment; it must succeed."""
        command = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "-qq", *arguments)
        done = run(*command, cwd=self.elsewhere, env=env or {}, patience=INSTALL_PATIENCE)
        assert done.code == 0, done.out + done.err

    def copy(self, folder: Path) -> Environment:
        """Return an environment of its own with the same distributions, copied as images copy them."""
        copied = new_environment(folder, self.elsewhere)
        shutil.copytree(self.site_packages, copied.site_packages, dirs_exist_ok=True, symlinks=True)
        script = (self.folder / "bin" / "tensorhub").read_text("utf-8").replace(str(self.folder), str(folder))
        (folder / "bin" / "tensorhub").write_text(script, "utf-8")
        (folder / "bin" / "tensorhub").chmod(0o755)
        return copied


def new_environment(folder: Path, elsewhere: Path, interpreter: str | Path = sys.executable) -> Environment:
    """Make a virtual environment without pip."""
    elsewhere.mkdir(parents=True, exist_ok=True)
    done = run(interpreter, "-m", "venv", "--without-pip", folder, cwd=elsewhere, env={})
    assert done.code == 0, done.err
    return Environment(folder, elsewhere)


def install_ourselves(env: Environment, wheel: Path) -> Environment:
    """Install this project's wheel with its dependencies."""
    env.pip("install", "-c", ROOT / "constraints.txt", wheel)
    return env


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock that all workers of a test run share."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(folder: Path, name: str) -> bool:
    """Whether nobody has done this yet; to be asked under a lock, and followed by the deed."""
    try:
        (folder / f"{name}.done").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Site:
    """An environment, and folders before it on the path, in this order."""

    environment: Environment
    path: tuple[Path, ...] = ()

    def ordered(self, *places: int) -> Site:
        """Return the same with the folders in another order."""
        return Site(self.environment, tuple(self.path[place] for place in places))

    def and_folder(self, *folders: Path) -> Site:
        """Return the same with folders before the others."""
        return Site(self.environment, (*folders, *self.path))

    def tensorhub(self, *arguments: str | Path, selection: str = "", cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Run:
        """Run the installed executable."""
        return self._run(self.environment.folder / "bin" / "tensorhub", *arguments, selection=selection, cwd=cwd, env=env)

    def tensorhub_here(self, *arguments: str | Path, cwd: Path, selection: str = "") -> Run:
        """Run the command line with the working folder on the path, as `python -c` and `python -m` have it."""
        return self._run(self.environment.python, "-c", _MAIN, *arguments, selection=selection, cwd=cwd)

    def python(self, script: str, *arguments: str | Path, selection: str = "", env: Mapping[str, str] | None = None) -> Run:
        """Run a script in the environment."""
        return self._run(self.environment.python, "-c", script, *arguments, selection=selection, env=env)

    def script(self, path: Path) -> Run:
        """Run a file in the environment."""
        return self._run(self.environment.python, path, selection="")

    def plugins(self, *, selection: str = "", code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the report of `tensorhub plugins`."""
        return _report(self.tensorhub("plugins", "--output", "json", selection=selection, env=env), code)

    def by_name(self, *, selection: str = "", env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the plugins by name; each name must be there once."""
        report = self.plugins(selection=selection, env=env)
        named = {each["name"]: each for each in report["plugins"]}
        assert len(named) == len(report["plugins"])
        return named

    def lanes(self, *, selection: str = "", code: int = 0, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the record that `tensorhub lanes` writes."""
        return _report(self.tensorhub("lanes", "--output", "json", selection=selection, env=env), code)

    def _run(self, *command: str | Path, selection: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Run:
        changes = {"PYTHONPATH": os.pathsep.join(map(str, self.path)), "TENSOR_CONTRACTS_PLUGINS": selection}
        changes = {key: value for key, value in changes.items() if value}
        return run(*command, cwd=cwd or self.environment.elsewhere, env={**changes, **(env or {})})


def _report(done: Run, code: int) -> dict[str, Any]:
    assert done.code == code, f"exit code {done.code}, not {code}: {done.err[-3000:]}{done.out[-2000:]}"
    report: dict[str, Any] = json.loads(done.out)
    return report


@dataclass
class Installer:
    """Installs projects into folders of their own, each once; keeps one process of pip for all of them."""

    base: Environment
    folder: Path
    held: dict[Project, Path] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def __call__(self, *projects: Project, torch: bool = False) -> Site:
        """Return the base environment with these projects before it on the path; `torch` adds a stand-in that must not be imported."""
        return Site(self.base, tuple(self.installed(each) for each in (*projects, *((FAKE_TORCH,) if torch else ()))))

    def wheel(self, project: Project) -> Path:
        """Return the wheel of a project."""
        place = self.folder / f"wheel-{len(list(self.folder.iterdir()))}"
        place.mkdir()
        return build_wheel(project.write(place / "source"), place)

    def installed(self, project: Project) -> Path:
        """Return the folder that a project is installed in. Tests read it only: see `changed`."""
        if project not in self.held:
            wheel = self.wheel(project)
            target = wheel.parent / "installed"
            self._pip("install", "-qq", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--target", target, wheel)
            self.held[project] = target
        return self.held[project]

    def changed(self, project: Project, folder: Path) -> Path:
        """Return a copy of an installed project for a test to damage."""
        return Path(shutil.copytree(self.installed(project), folder))

    def close(self) -> None:
        """End the process of pip."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(INSTALL_PATIENCE)

    def _pip(self, *arguments: str | Path) -> None:
        if self.process is None:
            command = [sys.executable, "-c", _PIP_LOOP]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.base.elsewhere)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(each) for each in arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer == "0", f"pip answered {answer!r}"


#: What looks for torch finds it, and what imports it fails.
FAKE_TORCH = project("torch", {}, {"torch/__init__.py": 'raise AssertionError("torch was imported")\n'}, version="2.13.0")


def metadata_folder(
    folder: Path, name: str, version: str = "1.0", entry_points: str | bytes | None = None, *, metadata: bool = True
) -> Path:
    """Write a .dist-info folder by hand, for what no build backend writes."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    if metadata:
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    if entry_points is not None:
        (place / "entry_points.txt").write_bytes(entry_points.encode() if isinstance(entry_points, str) else entry_points)
    return place


def excluded(record: Mapping[str, Any], code: str) -> list[dict[str, Any]]:
    """Return what a record of lanes leaves out for one reason."""
    return [each for each in record["excluded"] if each["code"] == code]


def names(plugins: Sequence[Mapping[str, Any]], state: str) -> list[str]:
    """Return the names of plugins in one state."""
    return [each["name"] for each in plugins if each["state"] == state]

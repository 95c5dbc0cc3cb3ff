"""The command answers at once because it imports little, and reads headers and configuration files alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import PATIENCE, TENSORHUB, environment, tensorhub
from tests.support.geometries import h3_conditioner

#: What computing, drawing and plugins need, and proving a contract does not.
HEAVY = {"torch", "numpy", "safetensors", "rich", "cattrs", "pluggy", "transformers", "huggingface_hub", "pydantic"}


def imported(*arguments: str | Path) -> set[str]:
    """Run a Python with these arguments; return the names of all modules that it imported, by its own account."""
    command = [sys.executable, "-X", "importtime", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.fixture(scope="module")
def h3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return h3_conditioner(tmp_path_factory.mktemp("h3") / "conditioner")


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What this interpreter imports before it runs anything, its site packages' start-up files included."""
    return imported("-c", "pass")


@pytest.mark.parametrize("output", [(), ("--output", "json")], ids=["text", "json"])
def test_inspect_imports_nothing_heavy(h3: Path, bare: set[str], output: tuple[str, ...]) -> None:
    modules = imported(TENSORHUB, "inspect", h3, *output)
    assert "tensorhub_contracts.inspection.inspector" in modules  # the account is not empty
    assert not {name.partition(".")[0] for name in modules - bare} & HEAVY
    assert not {name for name in modules - bare if name.startswith("importlib.metadata")}


def test_inspect_imports_no_module_that_only_others_need(h3: Path, bare: set[str]) -> None:
    """Each takes as long to import as all headers of the checkpoint take to read, and other commands use it."""
    modules = imported(TENSORHUB, "inspect", h3)
    assert not {"pathlib", "urllib.parse", "click.shell_completion", "hashlib", "traceback"} & (modules - bare)


def test_inspect_depends_on_attrs_click_and_msgspec_alone(h3: Path, bare: set[str]) -> None:
    roots = {name.partition(".")[0] for name in imported(TENSORHUB, "inspect", h3) - bare}
    others = roots - sys.stdlib_module_names - {"typing_extensions"}  # click's own business
    others -= {"org", "_wmi"}  # of Jython and of Windows, which the standard library's `copy` and `platform` ask for in vain
    assert others == {"attr", "attrs", "click", "msgspec", "tensorhub_contracts"}


def test_inspect_imports_no_other_command_and_no_other_report(h3: Path) -> None:
    modules = imported(TENSORHUB, "inspect", h3)
    ours = {name for name in modules if name.startswith(("tensorhub_contracts.commands.", "tensorhub_contracts.reports."))}
    wanted = {
        "commands.inspect", "commands.inspect_command", "commands.outputs", "commands.handles", "commands.progress", "commands.ending",
        "commands.repeated", "reports.text", "reports.grid_table", "reports.summary", "reports.printable",
    }  # fmt: skip
    assert ours <= {f"tensorhub_contracts.{name}" for name in wanted}
    assert not {"xml.etree.ElementTree", "tensorhub_contracts.reports.schemas", "unittest", "asyncio", "urllib.request"} & modules


def test_the_package_alone_imports_nothing_of_others(bare: set[str]) -> None:
    modules = imported("-c", "import tensorhub_contracts") - bare
    assert {name for name in modules if name.startswith("tensorhub")} == {"tensorhub_contracts", "tensorhub_contracts._version"}
    assert {name.partition(".")[0] for name in modules} - sys.stdlib_module_names == {"tensorhub_contracts"}


def test_the_version_is_said_without_importing_a_contract(bare: set[str]) -> None:
    modules = imported(TENSORHUB, "--version") - bare
    assert not {f"tensorhub_contracts.{each}" for each in ("registry.registry", "inspection.inspector", "checkpoints.header")} & modules


def test_help_loads_the_commands_of_others_and_computes_with_nothing(bare: set[str]) -> None:
    modules = imported(TENSORHUB, "--help") - bare
    assert "tensorhub_contracts.commands.installed" in modules
    assert not {name.partition(".")[0] for name in modules} & (HEAVY - {"pluggy"})


def test_bytes_read_are_the_headers_and_no_weight(h3: Path) -> None:
    """Counted a second time here from the file itself: the length, the header, and the configuration that declares the layout."""
    checkpoint = json.loads(tensorhub("inspect", h3, "--output", "json").out)["inspections"][0]["checkpoint"]
    with (h3 / "model.safetensors").open("rb") as file:
        header = 8 + int.from_bytes(file.read(8), "little")
    configuration = (h3 / "config.json").stat().st_size
    assert checkpoint["file_bytes"] == (h3 / "model.safetensors").stat().st_size == 27_620_655_224
    assert checkpoint["bytes_read"] in (header, header + configuration)

"""The example of docs/plugins.md, put together as a reader would and really installed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.environments import Installer, project

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")


#: The steps from a layout to a proved decoder, and what stands after them of commands.
STEPS, _, COMMANDS = PAGE.partition("\n## Bring a command\n")


def blocks(language: str, page: str = STEPS) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_b3_13_the_example_of_the_page_works_as_it_stands_there(install: Installer) -> None:
    contracts, entry_points = blocks("toml")
    decoder, hooks, _conformance = blocks("python")
    name, value = re.findall(r"^(\S+) = \"(.*)\"$", entry_points, re.MULTILINE)[0]
    files = {"acme_int8/__init__.py": "", "acme_int8/contracts.toml": contracts, "acme_int8/plugin.py": decoder + hooks}
    site = install(project("acme-int8", {name: value}, files, "0.1.0"))
    plugin = site.by_name()[name]
    assert (plugin["state"], plugin["reason"], plugin["owns"]) == ("loaded", "", ["acme.int8-channel@1"])
    (shown,) = (text for text in blocks("text") if "tensorhub plugins" in text)
    printed = site.tensorhub("plugins").out
    for line in shown.splitlines()[1:-1]:
        assert line.partition(" in …")[0] in printed
    assert "left out  acme.int8-channel@1 acme_int8.plugin:decode_int8_channel: requirement-missing: torch" in site.tensorhub("lanes").out


def test_the_test_class_of_the_page_is_that_of_the_template() -> None:
    conformance = blocks("python")[-1]
    template = (Path(__file__).parents[2] / "template" / "tests" / "test_conformance.py").read_text("utf-8")
    for line in conformance.splitlines():
        assert line in template


def test_the_command_of_the_page_is_brought_by_a_distribution(install: Installer) -> None:
    """The page shows where a command is declared and how it begins."""
    (entry_points,) = blocks("toml", COMMANDS)
    (beginning,) = blocks("python", COMMANDS)
    name, value = re.findall(r"^(\S+) = \"(.*)\"$", entry_points, re.MULTILINE)[0]
    path = value.partition(":")[0].replace(".", "/") + ".py"
    written = beginning.replace("def command(): ...", "def command(): click.echo('packed')")
    site = install(project("acme-pack", {name: value}, {path: f"import click\n{written}"}, group="tensorhub.commands"))
    done = site.tensorhub(name)
    assert (done.code, done.out) == (0, "packed\n"), done.err
    assert name in site.tensorhub("--help").out

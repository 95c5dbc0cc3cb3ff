"""Commands that installed distributions bring: really installed, found by their entry points, and each loaded by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.environments import Installer, Project, Site, project

GROUP = "tensorhub.commands"

#: Leaves a trace where it is imported.
MARKING = "import os, pathlib\npathlib.Path(os.environ['ACME_MARK']).touch()\n"

MINT = """import click

@click.command()
@click.argument("text")
def command(text):
    \"\"\"Mint a text.\"\"\"
    click.echo(f"minted {text}")
"""

BROKEN = {
    "import-error": ("import acme_is_not_there\n", "acme_broken_import_error:command", "No module named 'acme_is_not_there'"),
    "exits": ("raise SystemExit(0)\n", "acme_broken_exits:command", "SystemExit: 0"),
    "prints": ("print('noise')\nimport acme_is_not_there\n", "acme_broken_prints:command", "acme_is_not_there"),
    "absent": ("", "acme_broken_absent:command", "has no attribute 'command'"),
    "a-function": ("def command(): pass\n", "acme_broken_a_function:command", "function, and no click command"),
}


def bringing(name: str, module: str, text: str, command: str, value: str, version: str = "1.0") -> Project:
    return project(name, {command: value}, {f"{module}.py": text}, version, GROUP)


@pytest.fixture(scope="module")
def site(install: Installer) -> Site:
    """A site with a command that works, five that do not, one of a name that two declare, and one of the tool's own names."""
    broken = [bringing(f"acme-broken-{name}", value.partition(":")[0], text, name, value) for name, (text, value, _) in BROKEN.items()]
    return install(
        bringing("acme-mint", "acme_mint", MINT, "mint", "acme_mint:command", "2.1"),
        *broken,
        bringing("acme-press", "acme_press", MINT, "press", "acme_press:command"),
        bringing("other-press", "other_press", MINT, "press", "other_press:command"),
        bringing("acme-inspect", "acme_inspect", MINT, "inspect", "acme_inspect:command"),
    )


def test_a_command_that_works_runs_among_those_that_do_not(site: Site) -> None:
    done = site.tensorhub("mint", "a coin")
    assert (done.code, done.out, done.err) == (0, "minted a coin\n", "")


def test_help_lists_what_works_and_names_the_rest(site: Site) -> None:
    done = site.tensorhub("--help", env={"COLUMNS": "300"})
    assert done.code == 0, done.err
    used, _, unused = done.out.partition("Not in use:")
    unused = "".join(unused.split())  # lines are broken anywhere
    assert "Mint a text." in used
    assert all(name in used for name in ("inspect", "produce", "decode", "doctor", "kernels"))
    for name, (_, value, reason) in BROKEN.items():
        assert f"{name}(acme-broken-{name}1.0),entrypoint{value}:" in unused
        assert reason.replace(" ", "") in unused
    assert "declaredbyacme-press1.0andother-press1.0;uninstallallbutone," in unused
    assert "tensorhubhasacommandofthisname" in unused
    assert "noise" not in done.out


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_command_exits_with_3_and_is_named(site: Site, name: str) -> None:
    _, value, reason = BROKEN[name]
    done = site.tensorhub(name)
    assert (done.code, done.out) == (3, "")
    assert f"{name} (acme-broken-{name} 1.0), entry point {value}: " in done.err
    assert reason in done.err
    assert "not of your checkpoint" in done.err


def test_a_name_that_two_distributions_declare_is_nobodys(site: Site) -> None:
    done = site.tensorhub("press", "a coin")
    assert (done.code, done.out) == (3, "")
    assert (
        "declared by acme-press 1.0 and other-press 1.0; uninstall all but one, or block all but one in TENSOR_CONTRACTS_PLUGINS"
        in done.err
    )


@pytest.mark.parametrize("selection", ["-acme-mark", "-Acme_Mark", "-mark", "acme-press"])
def test_a_blocked_command_is_listed_and_never_imported(install: Installer, tmp_path: Path, selection: str) -> None:
    site = install(
        bringing("acme-mark", "acme_mark", MARKING + MINT, "mark", "acme_mark:command"),
        bringing("acme-press", "acme_press", MINT, "press", "acme_press:command"),
    )
    mark = {"ACME_MARK": str(tmp_path / "mark"), "COLUMNS": "200"}
    done = site.tensorhub("mark", "a coin", selection=selection, env=mark)
    assert (done.code, done.out) == (2, "")
    assert "mark (acme-mark 1.0): blocked by TENSOR_CONTRACTS_PLUGINS" in done.err
    done = site.tensorhub("--help", selection=selection, env=mark)
    assert done.code == 0
    assert "mark (acme-mark 1.0): blocked by TENSOR_CONTRACTS_PLUGINS" in done.out.partition("Not in use:")[2]
    assert "press" in done.out.partition("Not in use:")[0]
    assert "produce" in done.out.partition("Not in use:")[0]
    assert not (tmp_path / "mark").exists()
    assert site.tensorhub("mark", "a coin", env=mark).out == "minted a coin\n"
    assert (tmp_path / "mark").exists()


def test_blocking_all_but_one_settles_a_name(site: Site) -> None:
    done = site.tensorhub("press", "a coin", selection="-other-press")
    assert (done.code, done.out, done.err) == (0, "minted a coin\n", "")


def test_a_distribution_that_brings_commands_alone_may_be_named(site: Site) -> None:
    assert site.by_name(selection="acme-mint")["plain"]["state"] == "loaded"
    for arguments in (("plugins",), ("mint", "a coin"), ("--help",)):
        done = site.tensorhub(*arguments, selection="-acme-mynt")
        assert (done.code, "'acme-mynt' names no installed plugin" in done.err) == (2, True)


def test_the_tools_own_commands_are_not_replaced(site: Site) -> None:
    done = site.tensorhub("inspect", "--help")
    assert done.code == 0
    assert "Mint" not in done.out


def test_an_unknown_name_is_a_slip_of_usage(site: Site) -> None:
    done = site.tensorhub("mynt")
    assert done.code == 2
    assert "No such command 'mynt'" in done.err


def test_a_shell_completes_the_names_of_all(site: Site) -> None:
    completing = {"_TENSORHUB_COMPLETE": "bash_complete", "COMP_WORDS": "tensorhub m", "COMP_CWORD": "1"}
    assert "mint" in site.tensorhub(env=completing).out
    assert "produce" in site.tensorhub(env={**completing, "COMP_WORDS": "tensorhub pro"}).out


def test_a_shell_that_completes_a_broken_command_hears_nothing_of_it(site: Site) -> None:
    completing = {"_TENSORHUB_COMPLETE": "bash_complete", "COMP_WORDS": "tensorhub absent --", "COMP_CWORD": "2"}
    done = site.tensorhub(env=completing)
    assert (done.code, done.err) == (0, "")


def test_the_tools_own_commands_read_no_metadata(site: Site) -> None:
    """Whatever lies in the environment, a command of the tool is found without looking for others."""
    script = (
        "import sys\nfrom tensorhub_contracts.commands import tensorhub\ntensorhub.main(['explain', 'scale-grid'], standalone_mode=False)\n"
    )
    script += "assert 'tensorhub_contracts.commands.installed' not in sys.modules and 'importlib.metadata' not in sys.modules\n"
    assert site.python(script).code == 0

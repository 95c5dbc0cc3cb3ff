"""What loading plugins asks of the process that does it, and leaves of it: its threads, its streams, its handler of Ctrl-C."""

from __future__ import annotations

import json

from tests.support.environments import Installer, Site
from tests.support.plugin_sources import UNREAD, contracts, decoding, int8, owning, plugin

_STATES = "print(json.dumps({each.name: [each.state, each.reason] for each in installed_plugins().plugins}), file=sys.stderr)"
_HEAD = "import json, signal, sys, threading\nfrom tensorhub_contracts import installed_plugins\n"


def loaded(site: Site, script: str) -> None:
    """Run a script that writes states to standard error; all plugins must be loaded."""
    done = site.python(_HEAD + script)
    assert done.code == 0, done.err
    states = json.loads(done.err)
    assert set(states) == {"cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "int8", "plain"}
    assert {tuple(each) for each in states.values()} == {("loaded", "")}


def test_plugins_are_loaded_in_any_thread(install: Installer) -> None:
    loaded(install(int8()), f"thread = threading.Thread(target=lambda: {_STATES})\nthread.start()\nthread.join()\n")


def test_plugins_are_loaded_where_standard_output_is_closed_or_none(install: Installer) -> None:
    for line in ("sys.stdout.close()", "sys.stdout = None", "import os; os.close(1)"):
        loaded(install(int8()), f"{line}\n{_STATES}\n")


def test_an_ignored_ctrl_c_stays_ignored_while_plugins_are_loaded(install: Installer) -> None:
    pressing = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n" + owning(contracts())
    after = "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    loaded(install(int8(text=pressing)), f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{_STATES}\n{after}\n")


def test_the_handler_of_ctrl_c_is_the_same_afterwards_also_if_a_plugin_fails(install: Installer) -> None:
    script = """
def own(number, frame): pass
signal.signal(signal.SIGINT, own)
states = [each.state for each in installed_plugins().plugins]
assert "broken" in states and "loaded" in states, states
assert signal.getsignal(signal.SIGINT) is own
"""
    site = install(plugin("failing", "raise KeyboardInterrupt\n"), plugin("working", decoding(UNREAD)))
    done = site.python(_HEAD + script)
    assert done.code == 0, done.err

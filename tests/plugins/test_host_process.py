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


def test_a_plugin_that_fails_in_any_thread_is_broken(install: Installer) -> None:
    site = install(plugin("failing", "raise SystemExit(7)\n"), int8())
    listing = _STATES.replace("[each.state, each.reason]", "each.state")
    done = site.python(_HEAD + f"thread = threading.Thread(target=lambda: {listing})\nthread.start()\nthread.join()\n")
    assert done.code == 0, done.err
    assert (json.loads(done.err)["failing"], json.loads(done.err)["int8"]) == ("broken", "loaded")


def test_a_ctrl_c_of_the_user_ends_the_command_and_breaks_no_plugin(install: Installer) -> None:
    pressing = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n" + owning(contracts())
    done = install(int8(text=pressing)).tensorhub("plugins")
    assert (done.code, done.out) == (130, "")
    assert "broken" not in done.err


def test_what_was_written_before_stays_in_the_answer(install: Installer) -> None:
    writing = "import sys\nsys.__stdout__.write('noise\\n')\nsys.__stdout__.flush()\n" + owning(contracts())
    done = install(int8(text=writing)).python(f"{_HEAD}sys.stdout.write('before, ')\ninstalled_plugins()\nsys.stdout.write('after')\n")
    assert (done.code, done.out, done.err) == (0, "before, after", "noise\n")


def test_descriptors_are_as_they_were(install: Installer) -> None:
    script = """
import os
{before}
held = len(os.listdir("/proc/self/fd"))
installed_plugins()
assert len(os.listdir("/proc/self/fd")) == held
os.write(1, b"answer")
"""
    for before in ("", "os.close(0)", "sys.stdout = None"):
        done = install(int8()).python(_HEAD + script.format(before=before))
        assert (done.code, done.out, done.err) == (0, "answer", "")


def test_a_decoder_is_found_by_its_name_and_its_contract(install: Installer) -> None:
    script = """
plugins = installed_plugins()
shipped = plugins.decoder("tensorhub_decoders.plain:decode_plain", "plain.f16@1")
assert shipped.declaration.contract == "plain.f16@1"
for name, contract in (("tensorhub_decoders.plain:decode_plain", "acme.int8-channel@1"), ("acme_int8:decod", "acme.int8-channel@1")):
    try:
        plugins.decoder(name, contract)
    except KeyError:
        continue
    raise AssertionError(name)
"""
    done = install(int8()).python(_HEAD + script)
    assert done.code == 0, done.err

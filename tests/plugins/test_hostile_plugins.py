"""Nothing that a plugin raises, prints or delays ends a command with a success, breaks its answer or goes unsaid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Installer, Project, project
from tests.support.plugin_sources import UNREAD, decoding, int8, plugin

#: What raises SystemExit(0) when it is looked at.
HOSTILE = {
    "str": "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E()\n",
    "repr": "class E(Exception):\n    def __repr__(self): raise SystemExit(0)\n    __str__ = __repr__\nraise E()\n",
    "class": "class E(Exception):\n    @property\n    def __class__(self): raise SystemExit(0)\nraise E()\n",
    "name": "class M(type):\n    @property\n    def __name__(cls): raise SystemExit(0)\nclass E(Exception, metaclass=M): pass\nraise E()\n",
    "interrupt": "class E(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise E()\n",
    "cause": "class C(Exception):\n    def __str__(self): raise SystemExit(0)\nraise ValueError('outer') from C()\n",
    "notes": "class E(Exception):\n    @property\n    def __notes__(self): raise SystemExit(0)\nraise E('x')\n",
    "file": "import sys\nclass M:\n    TENSORHUB_PLUGIN_API = 1\n    def __getattr__(self, name): raise SystemExit(0)\n"
    "sys.modules[__name__] = M()\n",
    "broken": "from tensorhub_contracts.plugins.isolation import BrokenError\nclass T(str):\n    def __str__(self): raise SystemExit(0)\n"
    "    def __format__(self, how): raise SystemExit(0)\nraise BrokenError(T('x'))\n",
}


def hostile(text: str) -> Project:
    return plugin("acme_hostile", text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_exception_that_raises_when_it_is_written_ends_nothing(install: Installer, tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path / "refused", {"a.weight": ("F8_E4M3", (4, 4)), "a.weight_scale_inv": ("F32", (9, 9))})
    site = install(hostile(HOSTILE[kind]), int8())
    named = site.by_name()
    assert (named["acme_hostile"]["state"], named["int8"]["state"]) == ("broken", "loaded")
    assert named["acme_hostile"]["reason"]
    done = site.tensorhub("inspect", tmp_path / "refused", "--output", "json")
    assert done.code == 1
    assert json.loads(done.out)["inspections"][0]["contract"] is None
    assert site.tensorhub("lanes", "--strict").code == 3


def test_a_command_whose_class_or_help_raises_ends_no_other(install: Installer) -> None:
    text = "import click\nclass Odd:\n    @property\n    def __class__(self): raise SystemExit(0)\nodd = Odd()\n"
    text += "class Help(click.Command):\n    def get_short_help_str(self, limit=45): raise SystemExit(0)\nhelp = Help('help')\n"
    site = install(
        project("acme-odd", {"odd": "acme_odd:odd", "odd-help": "acme_odd:help"}, {"acme_odd.py": text}, group="tensorhub.commands")
    )
    done = site.tensorhub("--help", env={"COLUMNS": "300"})
    assert done.code == 0
    assert "Not in use:" in done.out
    assert "odd-help (acme-odd 1.0)" in done.out
    assert site.tensorhub("odd").code == 3


LATE = {
    "atexit": "import atexit\natexit.register(lambda: print('LATE', flush=True))\n",
    "atexit-descriptor": "import atexit, os\natexit.register(lambda: os.write(1, b'LATE'))\n",
    "kept-stream": "import atexit, sys\nkept = sys.__stdout__\natexit.register(lambda: (kept.write('LATE'), kept.flush()))\n",
    "thread": "import threading, time\ndef say():\n    for _ in range(200):\n        print('LATE', flush=True); time.sleep(0.002)\n"
    "threading.Thread(target=say).start()\n",
    "child": "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.4); print(\"LATE\", flush=True)'])\n",
}


@pytest.mark.parametrize("kind", LATE)
def test_what_a_plugin_prints_later_stays_out_of_the_answer(install: Installer, tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (4, 4))})
    site = install(plugin("acme_late", LATE[kind] + decoding(UNREAD)))
    for command in (("plugins",), ("lanes",), ("contracts",), ("inspect", tmp_path / "tree")):
        done = site.tensorhub(*command, "--output", "json")
        assert done.code == 0, done.err
        json.loads(done.out)
        assert "LATE" in done.err


def test_an_answer_is_the_same_with_and_without_a_plugin_that_prints(install: Installer) -> None:
    """Also where it is long, and where it is a file."""
    quiet, loud = (install(plugin("acme_late", text + decoding(UNREAD))) for text in ("", LATE["atexit"]))
    assert quiet.tensorhub("contracts", "show", UNREAD).out == loud.tensorhub("contracts", "show", UNREAD).out
    assert quiet.tensorhub("contracts").out == loud.tensorhub("contracts").out


def test_a_reader_that_has_gone_and_a_full_disk_are_told_apart_with_a_plugin_too(install: Installer) -> None:
    site = install(int8())
    tool = site.environment.folder / "bin" / "tensorhub"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, site.path))}
    for line, code in ((f"{tool} contracts >/dev/full", 3), (f"(sleep 0.3; exec {tool} contracts) | true; exit ${{PIPESTATUS[0]}}", 141)):
        done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "Traceback" in done.stderr, "Exception ignored" in done.stderr) == (code, False, False), done.stderr


def test_completion_reaches_the_shell_with_a_plugin(install: Installer) -> None:
    completing = {"_TENSORHUB_COMPLETE": "bash_complete", "COMP_WORDS": "tensorhub inspect --contract acme", "COMP_CWORD": "3"}
    assert "acme.int8-channel@1" in install(int8()).tensorhub(env=completing).out


def test_a_plugin_that_hangs_is_named(install: Installer) -> None:
    site = install(plugin("acme_slow", "import time\ntime.sleep(1.5)\n" + decoding(UNREAD)))
    script = (
        "from tensorhub_contracts.plugins import isolation\nisolation.PATIENCE = 0.2\nfrom tensorhub_contracts import installed_plugins\n"
    )
    done = site.python(script + "assert 'acme_slow' in [each.name for each in installed_plugins().loaded]\n")
    assert (done.code, done.out) == (0, "")
    said = "plugin acme_slow (acme-slow 1.0) has been importing for 0.2 s; block it with TENSOR_CONTRACTS_PLUGINS=-acme_slow\n"
    assert done.err.count(said) == 1
    assert done.err.replace(said, "") == ""
    quick = site.python("from tensorhub_contracts import installed_plugins\ninstalled_plugins()\n", selection="-acme_slow")
    assert (quick.code, quick.err) == (0, "")


def test_ctrl_c_goes_through_while_an_exception_is_written(install: Installer, tmp_path: Path) -> None:
    text = f"import pathlib, time\nclass E(Exception):\n    def __str__(self):\n        pathlib.Path({str(tmp_path / 'there')!r}).touch()\n"
    site = install(hostile(text + "        time.sleep(60)\nraise E()\n"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, site.path))}
    process = subprocess.Popen(
        [site.environment.folder / "bin" / "tensorhub", "plugins"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not (tmp_path / "there").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")

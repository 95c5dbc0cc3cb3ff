"""Plugins that fail: each is shown with its reason, and the shipped decoders and all other plugins go on working."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.environments import Installer, Site, excluded, names, project
from tests.support.plugin_sources import BLOCKWISE, HEAD, HOOK, INT8, UNREAD, contracts, declared, decoding, int8, plugin
from tests.support.trees import compressed_tensors_config

HOOK_HEAD = HEAD + "\n@hookimpl\ndef provide_decoders():\n"

#: Modules that fail while they are imported or asked, and what the reason says.
FAILING: Mapping[str, tuple[str, str]] = {
    "import_error": ("import acme_is_not_there\n", "ModuleNotFoundError: No module named 'acme_is_not_there'"),
    "syntax_error": ("def (:\n", "SyntaxError"),
    "system_exit": ("raise SystemExit(7)\n", "SystemExit: 7"),
    "sys_exit_in_hook": (HOOK_HEAD + "    import sys; sys.exit('bye')\n", "SystemExit: bye"),
    "keyboard_interrupt": ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "exception_in_hook": (HOOK_HEAD + "    raise ValueError('in the hook')\n", "ValueError: in the hook"),
    "exception_in_generator": (HOOK_HEAD + "    yield from ()\n    raise ValueError('later')\n", "ValueError: later"),
    "not_iterable": (HOOK_HEAD + "    return 7\n", "TypeError"),
    "base_exception": ("class Odd(BaseException): pass\nraise Odd('odd')\n", "Odd: odd"),
    "recursion": ("def down(): down()\ndown()\n", "RecursionError"),
    "cause": (
        "raise RuntimeError('two\\nlines') from ValueError()\n",
        "RuntimeError: two; lines",
    ),
    "contract_is_unknown": (decoding("acme.nothing@1"), "DeclarationError"),
}


def entry(module: str) -> str:
    return module.replace("_", "-")


def failing(install: Installer) -> Site:
    """Return a site on which every failing plugin is installed, and one that works."""
    broken = (plugin(f"failing_{module}", text, entry=entry(module)) for module, (text, _) in FAILING.items())
    return install(*broken, int8())


@pytest.fixture(scope="module")
def all_failing(install: Installer) -> tuple[Site, dict[str, Any]]:
    site = failing(install)
    return site, site.plugins()


def test_b3_01_a_plugin_that_fails_leaves_all_others_in_use(all_failing: tuple[Site, dict[str, Any]]) -> None:
    _, report = all_failing
    assert names(report["plugins"], "broken") == sorted(map(entry, FAILING))
    assert names(report["plugins"], "loaded") == ["cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise", "int8", "plain"]


@pytest.mark.parametrize("module", FAILING)
def test_b3_02_a_broken_plugin_is_listed_with_its_provenance_and_its_reason(all_failing: tuple[Site, dict[str, Any]], module: str) -> None:
    site, report = all_failing
    folder = site.path[list(FAILING).index(module)]
    (found,) = (each for each in report["plugins"] if each["name"] == entry(module))
    reason = FAILING[module][1]
    assert found["state"] == "broken"
    assert (found["distribution"], found["version"], found["value"]) == (f"failing-{entry(module)}", "1.0", f"failing_{module}")
    assert found["metadata"] == str(folder / f"failing_{module}-1.0.dist-info")
    assert found["reason"].startswith(reason)
    assert "Traceback (most recent call last):" in found["traceback"]
    assert reason.partition(":")[0] in found["traceback"]
    assert found["decodes"] == []


def test_b3_01_the_reason_says_where_it_was_raised(all_failing: tuple[Site, dict[str, Any]]) -> None:
    site, report = all_failing
    (found,) = (each for each in report["plugins"] if each["name"] == "exception-in-hook")
    assert f"{site.path[list(FAILING).index('exception_in_hook')] / 'failing_exception_in_hook.py'}:" in found["reason"]


def test_b3_01_strict_exits_with_3_and_shows_everything_all_the_same(install: Installer) -> None:
    site = failing(install)
    done = site.tensorhub("plugins", "--strict", "--output", "json")
    assert done.code == 3
    assert names(json.loads(done.out)["plugins"], "broken") == sorted(map(entry, FAILING))
    lanes = site.tensorhub("lanes", "--strict", "--output", "json")
    assert lanes.code == 3
    assert json.loads(lanes.out)["lanes_beyond_table"]
    for module, (_, reason) in FAILING.items():
        assert f"{entry(module)} (failing-{entry(module)} 1.0) is broken: {reason}" in lanes.err
    assert install(int8()).tensorhub("plugins", "--strict").code == 0
    assert install(int8()).tensorhub("lanes", "--strict").code == 0


def test_b3_01_the_listing_shows_tracebacks_when_it_is_asked_to(install: Installer) -> None:
    site = failing(install)
    text = site.tensorhub("plugins")
    assert text.code == 0
    assert "broken    exception-in-hook  failing-exception-in-hook 1.0\n" in text.out
    assert "reason    ValueError: in the hook" in text.out
    assert "Traceback" not in text.out
    assert site.tensorhub("plugins", "--traceback").out.count("Traceback (most recent call last):") >= len(FAILING)


def test_b3_02_lanes_name_every_broken_plugin_among_what_they_leave_out(install: Installer) -> None:
    record = failing(install).lanes()
    left_out = {each["module"]: each["reason"] for each in excluded(record, "plugin-broken")}
    assert set(left_out) == {f"failing_{module}" for module in FAILING}
    for module, (_, reason) in FAILING.items():
        assert left_out[f"failing_{module}"].startswith(f"{entry(module)} (failing-{entry(module)} 1.0): {reason}")
    assert record["lanes_beyond_table"] == ["int8-w8a16+eager", "int8-w8a16+compiled"]
    text = failing(install).tensorhub("lanes").out
    assert "left out  failing_import_error: plugin-broken: import-error (failing-import-error 1.0): ModuleNotFoundError" in text


def test_b3_02_a_refusal_for_want_of_a_contract_names_the_broken_plugin(install: Installer, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))})
    done = failing(install).tensorhub("inspect", tmp_path / "tree", "--contract", "acme.x@1")
    assert done.code == 2
    assert "contract-unknown" in done.err
    assert "import-error (failing-import-error 1.0) is broken: ModuleNotFoundError: No module named 'acme_is_not_there'" in done.err


def test_b3_02_a_refusal_for_want_of_a_decoder_names_the_broken_plugin(install: Installer, tmp_path: Path) -> None:
    tensors = {"a.weight": ("F8_E4M3", (256, 256)), "a.weight_scale": ("F32", (2, 2))}
    write_checkpoint(tmp_path / "tree", tensors, config=compressed_tensors_config("block", block_structure=[128, 128]))
    proved = failing(install).tensorhub("inspect", tmp_path / "tree")
    assert proved.code == 0
    assert "import-error (failing-import-error 1.0) is broken: ModuleNotFoundError" in proved.out  # in the note that nothing decodes it
    done = failing(install).tensorhub("inspect", tmp_path / "tree", "--decodable", "--output", "json")
    assert done.code == 1
    (violation,) = json.loads(done.out)["inspections"][0]["violations"]
    assert (violation["code"], violation["resembles"]) == ("contract-without-decoder", UNREAD)
    assert "import-error (failing-import-error 1.0) is broken: ModuleNotFoundError" in violation["remedy"]
    healthy = install(plugin("acme", decoding(UNREAD)))
    assert healthy.tensorhub("inspect", tmp_path / "tree", "--decodable").code == 0


def test_b6_01_a_decoder_whose_requirement_is_missing_is_left_out_and_says_so(install: Installer) -> None:
    record = install(plugin("acme", decoding(UNREAD, requires=("acme_kernels.fast",))), int8()).lanes()
    (left_out,) = (each for each in excluded(record, "requirement-missing") if each["contract"] == UNREAD)
    assert left_out["lanes"] == ["fp8-w8a16+eager", "fp8-w8a16+compiled"]
    assert left_out["reason"] == "acme_kernels.fast cannot be imported here"


NOISE = {
    "print": "print('noise')",
    "sys-stdout": "import sys; sys.stdout.write('noise\\n'); sys.stdout.flush()",
    "hook": "",
    "child-process": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(\"noise\")'])",
    "file-descriptor": "import os; os.write(1, b'noise\\n')",
}


@pytest.mark.parametrize("kind", NOISE)
def test_b3_01_what_a_plugin_prints_stays_out_of_the_answer(install: Installer, kind: str) -> None:
    hook = (
        "\n@hookimpl\ndef provide_decoders():\n    print('noise')\n    return (decode,)\n" if kind == "hook" else HOOK.format(name="decode")
    )
    site = install(plugin("noisy", f"{NOISE[kind]}\n{HEAD}{declared(UNREAD)}{hook}"))
    for command in ("plugins", "lanes"):
        done = site.tensorhub(command, "--output", "json")
        assert done.code == 0, done.err
        json.loads(done.out)
        assert "noise" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no text')\nraise Odd\n",
        "raise RuntimeError('half a pair: \\udcff')\n",
        "raise RuntimeError('\\x1b[31mred')\n",
    ],
    ids=["no-text", "lone-surrogate", "escape"],
)
def test_b3_01_an_exception_that_cannot_be_written_is_reported_all_the_same(install: Installer, text: str) -> None:
    site = install(plugin("odd", text), int8())
    named = site.by_name()
    assert named["odd"]["state"] == "broken"
    assert named["int8"]["state"] == "loaded"
    for command in ("plugins", "lanes"):
        done = site.tensorhub(command)
        assert done.code == 0, done.err
        assert "\x1b" not in done.out


def test_b3_01_a_warning_of_a_plugin_is_no_fault(install: Installer) -> None:
    site = install(plugin("warning", "import warnings\nwarnings.warn('old', DeprecationWarning)\n" + decoding(UNREAD)))
    assert site.by_name()["warning"]["state"] == "loaded"


#: B3-11: what an entry point names, and what is said of it; None where it is a plugin.
OBJECTS: Mapping[str, tuple[str, str | None]] = {
    "none": ("NOTHING = None\n", "things_none:NOTHING is None"),
    "class": (
        f"{HEAD}\nclass NOTHING:\n    TENSORHUB_PLUGIN_API = 1\n    @hookimpl\n    def provide_decoders(self): return ()\n",
        "is a class",
    ),
    "function": (f"{HEAD}\n@hookimpl\ndef provide_decoders(): return ()\nNOTHING = provide_decoders\n", "is a function"),
    "built_in": ("NOTHING = len\n", "is a function"),
    "number": ("NOTHING = 7\n", "TENSORHUB_PLUGIN_API"),
    "missing_attribute": ("\n", "AttributeError"),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_b3_11_what_is_no_plugin_is_broken_and_says_what_it_is(install: Installer, kind: str) -> None:
    text, reason = OBJECTS[kind]
    site = install(project(f"things-{entry(kind)}", {"thing": f"things_{kind}:NOTHING"}, {f"things_{kind}.py": text}), int8())
    named = site.by_name()
    assert named["thing"]["state"] == "broken"
    assert reason is not None
    assert reason in named["thing"]["reason"]
    assert named["int8"]["state"] == "loaded"


def test_b3_11_a_module_that_is_not_there(install: Installer) -> None:
    named = install(project("gone", {"gone": "acme_gone"}, {"acme_other.py": ""})).by_name()
    assert named["gone"]["state"] == "broken"
    assert named["gone"]["reason"].startswith("ModuleNotFoundError: No module named 'acme_gone'")


def test_b3_11_a_module_without_hooks(install: Installer) -> None:
    found = install(plugin("hookless", "TENSORHUB_PLUGIN_API = 1\ndef provide_decoders(): return ()\n")).by_name()["hookless"]
    assert found["state"] == "broken"
    assert "hookless has no hook; mark provide_contracts or provide_decoders with tensorhub_contracts.hookimpl" in found["reason"]


def test_b3_11_an_object_with_hooks_is_a_plugin(install: Installer) -> None:
    text = (
        HEAD
        + declared(UNREAD)
        + "\nclass Plugin:\n    TENSORHUB_PLUGIN_API = 1\n"
        + "    @hookimpl\n    def provide_decoders(self): return [decode]\n\nPLUGIN = Plugin()\n"
    )
    site = install(project("object", {"object": "acme_object:PLUGIN"}, {"acme_object.py": text}))
    found = site.by_name()["object"]
    assert (found["state"], found["reason"], found["notes"]) == ("loaded", "", [])
    assert found["file"] == str(site.path[0] / "acme_object.py")
    assert [each["decoder"] for each in found["decodes"]] == ["acme_object:decode"]


@pytest.mark.parametrize("hook", ["provide_decoder", "provides_decoders", "provide_contract"])
def test_b3_11_a_misspelt_hook_is_not_ignored(install: Installer, hook: str) -> None:
    text = HEAD + declared(UNREAD) + HOOK.format(name="decode") + f"\n@hookimpl\ndef {hook}():\n    return ()\n"
    found = install(plugin("misspelt", text)).by_name()["misspelt"]
    assert found["state"] == "broken"
    assert f"{hook} is marked as a hook, and there is no such hook; hooks are provide_contracts and provide_decoders" in found["reason"]


def test_b3_11_a_decoder_that_declares_nothing_is_not_ignored(install: Installer) -> None:
    for module, returned in (("bare", "lambda: None"), ("typed", "int"), ("text", "'decode'")):
        found = install(plugin(f"undeclared_{module}", f"{HOOK_HEAD}    return [{returned}]\n")).by_name()[f"undeclared_{module}"]
        assert found["state"] == "broken"
        assert "declares no contract" in found["reason"]


def test_b3_11_a_class_is_no_decoder_whatever_its_methods_declare(install: Installer) -> None:
    method = "".join(f"    {line}\n" for line in declared(UNREAD).splitlines())
    text = f"{HEAD}\nclass Decoders:\n{method}\n@hookimpl\ndef provide_decoders():\n    return [{{}}]\n"
    site = install(plugin("methods", text.format("Decoders.decode")), plugin("classes", text.format("Decoders")))
    named = site.by_name()
    assert named["methods"]["state"] == "loaded"
    assert named["classes"]["state"] == "broken"
    assert "provide_decoders returned <class 'classes.Decoders'>, which declares no contract" in named["classes"]["reason"]


def test_b3_11_contracts_that_are_none_are_not_ignored(install: Installer) -> None:
    found = install(plugin("unread", HEAD + "\n@hookimpl\ndef provide_contracts():\n    return {}\n")).by_name()["unread"]
    assert found["state"] == "broken"
    assert "provide_contracts returned dict" in found["reason"]


def test_b3_12_an_extra_argument_is_shown_beside_the_signature_of_the_hook(install: Installer) -> None:
    text = HEAD + declared(UNREAD) + "\n@hookimpl\ndef provide_decoders(config, device):\n    return (decode,)\n"
    named = install(plugin("older", text), int8()).by_name()
    assert named["older"]["state"] == "broken"
    assert "provide_decoders(config, device)" in named["older"]["reason"]
    assert "where the hook is provide_decoders()" in named["older"]["reason"]
    assert named["int8"]["state"] == "loaded"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "states none"),
        ("TENSORHUB_PLUGIN_API = None", "states none"),
        ("TENSORHUB_PLUGIN_API = 2", "was written for 2"),
        ("TENSORHUB_PLUGIN_API = True", "was written for True"),
        ("TENSORHUB_PLUGIN_API = '1'", "was written for '1'"),
    ],
)
def test_b3_12_a_plugin_for_another_interface_is_broken_with_both_versions(install: Installer, line: str, said: str) -> None:
    text = decoding(UNREAD).replace("TENSORHUB_PLUGIN_API = 1", line)
    found = install(plugin("versioned", text)).by_name()["versioned"]
    assert found["state"] == "broken"
    assert found["reason"] == f"TENSORHUB_PLUGIN_API: this release has version 1 of the interface, and the plugin {said}"


def test_b3_12_a_plugin_of_this_interface_works_without_every_hook(install: Installer) -> None:
    site = install(plugin("owner", HEAD + f"\n@hookimpl\ndef provide_contracts():\n    return read_contracts({contracts()!r})\n"))
    found = site.by_name()["owner"]
    assert (found["state"], found["owns"], found["decodes"]) == ("loaded", [INT8], [])
    assert BLOCKWISE in site.tensorhub("contracts").out

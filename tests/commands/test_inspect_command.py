"""`tensorhub inspect` as a user meets it: exit codes, streams, files, progress, and names that come from hostile files."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

import tensorhub_contracts.registry.registry as registry_module
from tensorhub_contracts.commands import main
from tensorhub_contracts.commands import tensorhub as group
from tests.support.checkpoint_files import write_checkpoint
from tests.support.cli import PATIENCE, TENSORHUB, environment, on_a_terminal, tensorhub
from tests.support.geometries import h3_conditioner
from tests.support.trees import BLOCKWISE, ROWWISE, bf16, compressed_tensors_config, fp8_config, unit

#: What a terminal would act on: every control character but the newline (and the carriage return that a terminal adds to it).
CONTROL = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

#: The styles that a report may use: colour, bold, dim and their end.
STYLE = re.compile("\x1b\\[[0-9;]*m")


def accepted_tree(folder: Path) -> Path:
    """Write a tree in hf.fp8-blockwise@1."""
    return write_checkpoint(folder, {**unit("model.layers.0.q_proj", 256, 384), **bf16("model.norm.weight", 256)}, config=fp8_config())


def refused_tree(folder: Path) -> Path:
    """Write a tree that lacks a scale."""
    tensors = {**unit("model.layers.0.q_proj", 256, 384), "model.layers.1.q_proj.weight": ("F8_E4M3", (256, 384))}
    return write_checkpoint(folder, tensors, config=fp8_config())


def recognized_tree(folder: Path) -> Path:
    """Write a tree in a contract that nothing here reads."""
    tensors = {"a.weight": ("F8_E4M3", (256, 384)), "a.weight_scale": ("F32", (256, 1))}
    return write_checkpoint(folder, tensors, config=compressed_tensors_config("channel"))


def pipeline(root: Path, *, broken: bool) -> Path:
    """Write a pipeline root of two components with weights, one of them refused if `broken`, and a scheduler without any."""
    listed = {
        "_class_name": "FluxPipeline",
        "text_encoder": ["transformers", "T5EncoderModel"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    }
    accepted_tree(root / "transformer")
    (refused_tree if broken else accepted_tree)(root / "text_encoder")
    (root / "scheduler").mkdir()
    (root / "scheduler" / "scheduler_config.json").write_text("{}", encoding="utf-8")
    (root / "model_index.json").write_text(json.dumps(listed), encoding="utf-8")
    return root


# Exit codes.


def test_accepted_exits_with_0(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"))
    assert run.code == 0
    assert run.out.startswith(f"{tmp_path}/tree\n  contract  {BLOCKWISE}  sha256:")
    assert run.err == ""


def test_a_file_is_inspected_like_its_folder_without_its_declaration(tmp_path: Path) -> None:
    tree = write_checkpoint(tmp_path / "tree", bf16("a.weight", 8, 8))
    run = tensorhub("inspect", tree / "model.safetensors")
    assert run.code == 0
    assert "plain.bf16@1" in run.out


def test_refused_exits_with_1_and_reports_on_standard_output(tmp_path: Path) -> None:
    run = tensorhub("inspect", refused_tree(tmp_path / "tree"))
    assert run.code == 1
    assert "REFUSED" in run.out
    assert "scale-missing" in run.out
    assert run.err == ""  # the report is the answer; nothing went wrong with the tool


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}trailing"])
def test_a_broken_container_exits_with_1(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    run = tensorhub("inspect", tmp_path)
    assert run.code == 1
    assert "REFUSED" in run.out
    assert "Traceback" not in run.out + run.err


def test_a_folder_without_weights_exits_with_1(tmp_path: Path) -> None:
    run = tensorhub("inspect", tmp_path)
    assert run.code == 1
    assert "checkpoint-without-weights" in run.out


def test_what_it_is_and_who_can_run_it_are_two_questions(tmp_path: Path) -> None:
    tree = recognized_tree(tmp_path / "tree")
    proved = tensorhub("inspect", tree)
    assert proved.code == 0
    assert "no decoder installed here" in proved.out
    asked = tensorhub("inspect", tree, "--decodable")
    assert asked.code == 1
    assert "contract-without-decoder" in asked.out
    assert tensorhub("inspect", accepted_tree(tmp_path / "other"), "--decodable").code == 0
    assert tensorhub("artifact", tree).code == 0


def test_a_major_ahead_of_the_registry_exits_with_1(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--contract", "hf.fp8-blockwise@9")
    assert run.code == 1
    assert "contract-ahead" in run.out + run.err
    assert BLOCKWISE in run.out + run.err
    assert "Traceback" not in run.err


def test_a_major_ahead_still_gives_programs_a_report(tmp_path: Path) -> None:
    """Exit code 1 promises an answer; a program that asked for JSON must find it on standard output."""
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--contract", "hf.fp8-blockwise@9", "--output", "json")
    assert run.code == 1
    report = json.loads(run.out)
    assert [each["code"] for each in report["inspections"][0]["violations"]] == ["contract-ahead"]


def test_nothing_at_the_path_exits_with_2(tmp_path: Path) -> None:
    run = tensorhub("inspect", tmp_path / "nowhere")
    assert run.code == 2
    assert str(tmp_path / "nowhere") in run.err
    assert run.out == ""


def test_a_broken_link_is_there_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    run = tensorhub("inspect", tmp_path / "link")
    assert run.code == 1
    assert "file-broken-link" in run.out


def test_an_unknown_format_exits_with_2_and_lists_the_formats(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--output", "yaml")
    assert run.code == 2
    assert "yaml" in run.err
    assert all(name in run.err for name in ("text", "json", "sarif", "junit", "github"))


def test_an_unknown_handle_exits_with_2_and_suggests_the_nearest(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--contract", "hf.fp8-blokwise@1")
    assert run.code == 2
    assert f"Did you mean {BLOCKWISE}?" in run.err


@pytest.mark.parametrize("handle", ["hf.fp8-blockwise", "HF.FP8-Blockwise@1", " hf.fp8-blockwise@1", "hf.fp8_blockwise@1", "@1", ""])
def test_a_malformed_handle_exits_with_2_and_shows_the_form(tmp_path: Path, handle: str) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--contract", handle)
    assert run.code == 2
    assert "producer.format@major" in run.err
    assert run.out == ""


def test_an_almost_well_formed_handle_is_told_the_nearest(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--contract", "cozy.fp8_rowwise@1")
    assert run.code == 2
    assert ROWWISE in run.err


def test_two_reports_for_standard_output_exit_with_2(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--output", "text", "--output", "json")
    assert run.code == 2
    assert "standard output" in run.err
    assert run.out == ""


def test_an_equals_sign_without_a_file_exits_with_2(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--output", "json=")
    assert run.code == 2
    assert "json=" in run.err


@pytest.mark.parametrize("file", ["no/such/folder/report.json", "."])
def test_a_file_that_cannot_be_written_exits_with_2(tmp_path: Path, file: str) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--output", f"json={file}", cwd=tmp_path)
    assert run.code == 2
    assert "cannot write" in run.err
    assert "Traceback" not in run.err


def test_no_path_exits_with_2() -> None:
    assert tensorhub("inspect").code == 2


def test_an_unexpected_exception_exits_with_3_and_is_not_blamed_on_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **keywords: object) -> NoReturn:
        raise RuntimeError("a slip of ours")

    monkeypatch.setattr(importlib.import_module("tensorhub_contracts.commands.inspect_command"), "inspect", fail)
    code, err = _main(["inspect", str(accepted_tree(tmp_path / "tree"))], monkeypatch, capsys)
    assert code == 3
    assert "a slip of ours" in err  # with the traceback, which a report of the fault needs
    assert "fault of tensorhub-contracts" in err
    assert "not of your checkpoint" in err


@pytest.mark.parametrize("content", ["schema = [", "schema = 2", 'schema = 1\n[[contract]]\nhandle = "a.b@1"', None])
def test_a_broken_registry_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fresh_registry: None, content: str | None
) -> None:
    path = tmp_path / "registry.toml"
    if content is None:
        monkeypatch.setattr(registry_module, "FOLDER", str(tmp_path / "package"))
    else:
        path.write_text(content, encoding="utf-8")
        monkeypatch.setattr(registry_module, "registry_path", lambda: path)
    code, err = _main(["inspect", str(accepted_tree(tmp_path / "tree"))], monkeypatch, capsys)
    assert code == 3
    assert "registry.toml" in err
    assert "Traceback" not in err  # the fault is known, and named
    assert "not of your checkpoint" in err  # and the user is told whose it is


def test_an_interrupted_run_is_not_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 is an answer about a checkpoint; Ctrl-C gives none."""

    def interrupt(*arguments: object, **keywords: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("tensorhub_contracts.commands.inspect_command"), "inspect", interrupt)
    code, err = _main(["inspect", str(accepted_tree(tmp_path / "tree"))], monkeypatch, capsys)
    assert "Traceback" not in err
    assert code not in (0, 1)


def _main(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Call the entry point in this process, where a fault can be planted; return the exit code and standard error."""
    monkeypatch.setattr(sys, "argv", ["tensorhub", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code, capsys.readouterr().err


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Forget the registry that was read, before and after: it is read once a process."""
    registry_module.load_registry.cache_clear()
    yield
    registry_module.load_registry.cache_clear()


# What is inspected.


def test_the_contract_asked_for_is_accepted(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["inspect", str(accepted_tree(tmp_path / "tree")), "--contract", BLOCKWISE])
    assert result.exit_code == 0
    assert BLOCKWISE in result.stdout


def test_another_contract_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["inspect", str(accepted_tree(tmp_path / "tree")), "--contract", ROWWISE])
    assert result.exit_code == 1
    assert f"REFUSED, judged against {ROWWISE}" in result.stdout
    assert "contract-mismatch" in result.stdout
    assert BLOCKWISE in result.stdout  # the one that it is in


def test_one_component_of_a_pipeline(tmp_path: Path) -> None:
    root = pipeline(tmp_path / "pipeline", broken=True)
    result = CliRunner().invoke(group, ["inspect", str(root), "--component", "transformer"])
    assert result.exit_code == 0
    assert "text_encoder" not in result.stdout
    refused = CliRunner().invoke(group, ["inspect", str(root), "--component", "text_encoder"])
    assert refused.exit_code == 1


def test_an_unknown_component_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["inspect", str(pipeline(tmp_path / "pipeline", broken=False)), "--component", "unet"])
    assert result.exit_code == 1
    assert "component-unknown" in result.stdout
    assert "text_encoder" in result.stdout
    assert "transformer" in result.stdout


def test_a_pipeline_root_inspects_every_component_with_weights(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["inspect", str(pipeline(tmp_path / "pipeline", broken=False)), "--output", "json"])
    assert result.exit_code == 0
    inspections = json.loads(result.stdout)["inspections"]
    assert [(each["component"], each["accepted"]) for each in inspections] == [("text_encoder", True), ("transformer", True)]


def test_a_pipeline_with_one_refused_component_exits_with_1_and_shows_all(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["inspect", str(pipeline(tmp_path / "pipeline", broken=True))])
    assert result.exit_code == 1
    assert "· text_encoder\n  contract  REFUSED" in result.stdout
    assert f"· transformer\n  contract  {BLOCKWISE}" in result.stdout


def test_a_broken_model_index_is_refused_once(tmp_path: Path) -> None:
    root = pipeline(tmp_path / "pipeline", broken=False)
    (root / "model_index.json").write_text("{", encoding="utf-8")
    result = CliRunner().invoke(group, ["inspect", str(root), "--output", "json"])
    assert result.exit_code == 1
    (inspection,) = json.loads(result.stdout)["inspections"]
    assert [each["code"] for each in inspection["violations"]] == ["config-json"]


# Where reports go.


def test_one_report_on_standard_output_and_the_others_in_files(tmp_path: Path) -> None:
    tree = refused_tree(tmp_path / "tree")
    files = [f"--output={name}={tmp_path / name}" for name in ("json", "sarif", "junit", "github")]
    run = tensorhub("inspect", tree, *files, "--output", "text")
    assert run.code == 1
    assert "scale-missing" in run.out
    assert json.loads((tmp_path / "json").read_text("utf-8"))["accepted"] is False
    assert json.loads((tmp_path / "sarif").read_text("utf-8"))["version"] == "2.1.0"
    assert (tmp_path / "junit").read_text("utf-8").startswith("<?xml")
    assert (tmp_path / "github").read_text("utf-8").startswith("::error ")


def test_with_files_alone_standard_output_stays_empty(tmp_path: Path) -> None:
    run = tensorhub("inspect", accepted_tree(tmp_path / "tree"), "--output", f"json={tmp_path / 'a report=1.json'}")
    assert (run.code, run.out, run.err) == (0, "", "")
    assert json.loads((tmp_path / "a report=1.json").read_text("utf-8"))["accepted"] is True


def test_text_in_a_file_holds_no_escape_sequence_even_when_run_on_a_terminal(tmp_path: Path) -> None:
    run = on_a_terminal(TENSORHUB, "inspect", accepted_tree(tmp_path / "tree"), f"--output=text={tmp_path / 'report'}", out=True)
    text = (tmp_path / "report").read_text("utf-8")
    assert run.code == 0
    assert BLOCKWISE in text
    assert "\x1b" not in text


def test_text_on_a_terminal_has_styles_and_in_a_pipe_has_none(tmp_path: Path) -> None:
    tree = accepted_tree(tmp_path / "tree")
    shown = on_a_terminal(TENSORHUB, "inspect", tree, out=True).terminal
    piped = tensorhub("inspect", tree).out
    assert STYLE.search(shown)
    assert STYLE.sub("", shown).replace("\r\n", "\n") == piped


def test_json_on_standard_output_is_json_and_nothing_else(tmp_path: Path) -> None:
    for tree in (accepted_tree(tmp_path / "accepted"), refused_tree(tmp_path / "refused"), tmp_path):
        run = tensorhub("inspect", tree, "--output", "json")
        assert run.out.endswith("}\n")
        assert run.out.count("\n") == 1
        assert isinstance(json.loads(run.out), dict)
        assert run.err == ""


# Progress.

#: The real command, with a bar that does not wait.
IMPATIENT = "import tensorhub_contracts.commands.progress as p; p.PATIENCE = 0; from tensorhub_contracts.commands import main; main()"


def sharded_tree(folder: Path) -> Path:
    """Write an accepted tree of four shards."""
    tensors = {name: facts for number in range(4) for name, facts in unit(f"layers.{number}.q", 256, 384).items()}
    return write_checkpoint(folder, tensors, config=fp8_config(), shards=4)


def test_no_progress_without_a_terminal(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", IMPATIENT, "inspect", str(sharded_tree(tmp_path / "tree"))]
    done = subprocess.run(arguments, capture_output=True, env=environment(), timeout=PATIENCE, check=True)
    assert done.stderr == b""
    assert b"reading headers" not in done.stdout


def test_no_progress_on_a_terminal_when_the_run_is_quick(tmp_path: Path) -> None:
    run = on_a_terminal(TENSORHUB, "inspect", sharded_tree(tmp_path / "tree"))
    assert run.code == 0
    assert run.terminal == ""
    assert BLOCKWISE in run.out


def test_a_bar_on_a_terminal_when_reading_takes_long(tmp_path: Path) -> None:
    run = on_a_terminal(sys.executable, "-c", IMPATIENT, "inspect", sharded_tree(tmp_path / "tree"), "--output", "json")
    assert run.code == 0
    assert "reading headers" in run.terminal
    assert run.terminal.rindex("\x1b[?25h") > run.terminal.index("\x1b[?25l")  # the cursor that was hidden is back
    assert run.terminal.rstrip("\r\n").endswith("\x1b[2K")  # and the bar is wiped off
    assert json.loads(run.out)["accepted"] is True


def test_the_bar_is_wiped_off_when_the_checkpoint_is_refused(tmp_path: Path) -> None:
    tree = sharded_tree(tmp_path / "tree")
    (tree / "model-00003-of-00004.safetensors").write_bytes(b"")
    run = on_a_terminal(sys.executable, "-c", IMPATIENT, "inspect", tree)
    assert run.code == 1
    assert "Traceback" not in run.terminal
    assert "\x1b[?25l" not in run.terminal or run.terminal.rindex("\x1b[?25h") > run.terminal.rindex("\x1b[?25l")


# Names from hostile files and folders.

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x08\x7f\x9b31m\u202e\u2028\n::error::x"


@pytest.mark.parametrize("output", ["text", "json", "sarif", "junit", "github"])
def test_names_in_a_checkpoint_never_drive_the_terminal(tmp_path: Path, output: str) -> None:
    tensors = {
        f"{HOSTILE}.weight": ("F8_E4M3", (256, 384)),
        f"{HOSTILE}.weight_scale_inv": ("F32", (3, 2)),
        f"{HOSTILE}norm": ("BF16", (4,)),
    }
    config = fp8_config(modules_to_not_convert=[HOSTILE], fmt=HOSTILE)
    run = on_a_terminal(TENSORHUB, "inspect", write_checkpoint(tmp_path / "tree", tensors, config=config), "--output", output, out=True)
    assert run.code == 1
    shown = STYLE.sub("", run.terminal) if output == "text" else run.terminal
    allowed = "\x7f\x9b\u202e" if output in ("json", "junit") else ""  # both may hold these as they are, and are for programs
    assert set(CONTROL.findall(shown.replace("\r\n", "\n"))) <= set(allowed)
    assert "\r" not in shown.replace("\r\n", "\n")
    assert "31m" in shown  # the name is shown, spelled out


def test_notes_of_an_accepted_checkpoint_never_drive_the_terminal(tmp_path: Path) -> None:
    tensors = {**unit("q", 256, 384), **unit(HOSTILE, 256, 256), **bf16(f"{HOSTILE}.norm.weight", 64, 64)}
    tree = write_checkpoint(tmp_path / "tree", tensors, config=fp8_config(modules_to_not_convert=[f"{HOSTILE}x"]))
    run = on_a_terminal(TENSORHUB, "inspect", tree, out=True)
    assert run.code == 0
    assert not CONTROL.findall(STYLE.sub("", run.terminal).replace("\r\n", "\n"))


@pytest.mark.parametrize("name", ["with space", "100%", "a:b", "two\nlines", "esc\x1b[31m", "ünïcode", "-dash"])
@pytest.mark.parametrize("output", ["text", "json", "sarif", "junit", "github"])
def test_any_folder_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, output: str) -> None:
    refused_tree(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(group, ["inspect", "--output", output, "--", name])
    assert result.exit_code == 1, result.output
    assert "\x1b" not in result.stdout
    if output == "text":
        assert result.stdout.splitlines()[0] == name.replace("\n", "\\n").replace("\x1b", "\\x1b")
    if output == "json":
        assert json.loads(result.stdout)["inspections"][0]["path"] == name


@pytest.mark.parametrize("output", ["text", "json", "sarif", "junit", "github"])
@pytest.mark.parametrize("to_file", [False, True], ids=["stdout", "file"])
def test_a_folder_name_that_is_not_utf8(tmp_path: Path, output: str, to_file: bool) -> None:
    name = os.fsdecode(b"caf\xe9")
    refused_tree(tmp_path / name)
    where = f"{output}={tmp_path / 'report'}" if to_file else output
    run = tensorhub("inspect", tmp_path / name, "--output", where)
    assert run.code == 1, run.err
    assert run.err == ""
    report = (tmp_path / "report").read_text("utf-8") if to_file else run.out
    assert "caf" in report
    assert "\ufffd" not in report  # what was written is UTF-8


# A reader that goes away.


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_closed_pipe_is_no_traceback(tmp_path: Path, output: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as when `head` is done: the first byte that is written finds nobody
    try:
        arguments = [TENSORHUB, "inspect", accepted_tree(tmp_path / "tree"), "--output", output]
        done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE)
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode != 3


def test_a_closed_pipe_does_not_turn_an_accepted_checkpoint_into_a_refused_one(tmp_path: Path) -> None:
    """With `set -o pipefail`, a script takes exit code 1 for a refusal."""
    h3_conditioner(tmp_path / "tree")  # its JSON is longer than a pipe holds
    script = 'set -o pipefail; "$0" inspect "$1" --output json | head -c 1'
    done = subprocess.run(["bash", "-c", script, TENSORHUB, tmp_path / "tree"], capture_output=True, env=environment(), timeout=PATIENCE)
    assert done.stdout == b"{"
    assert done.stderr == b""
    assert done.returncode != 1

"""Pipes and devices in place of documents and reports: an error that names them, at once."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

from tests.support.checkpoint_files import write_checkpoint
from tests.support.cli import TENSORHUB, environment, tensorhub

HOSTILE = "x\n::error file=a::owned\r\u202etxt\u2028\x1b[31m"


@pytest.mark.parametrize("option", ["artifact", "image", "demand", "check"])
@pytest.mark.parametrize("kind", ["a named pipe", "a device"])
def test_a_document_that_is_no_file_is_not_waited_for(option: str, kind: str, tmp_path: Path) -> None:
    small, odd = tmp_path / "small.json", tmp_path / "odd.json"
    small.write_text("{}")
    os.mkfifo(odd) if kind == "a named pipe" else odd.symlink_to("/dev/zero")
    arguments = {
        "artifact": ("satisfies", odd, "--image", small),
        "image": ("satisfies", small, "--image", odd),
        "demand": ("satisfies", small, "--image", small, "--demand", odd),
        "check": ("lanes", "--check", odd),
    }
    done = tensorhub(*arguments[option])
    assert (done.code, "Traceback" in done.err) == (2, False), done.err
    assert kind in done.err


@pytest.mark.parametrize("name", ["config.json", "params.json", "model.safetensors.index.json", "model_index.json"])
def test_a_pipe_beside_the_weights_is_refused_at_once(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (4, 4))})
    os.mkfifo(tmp_path / "tree" / name)
    done = tensorhub("inspect", tmp_path / "tree")
    assert done.code == 4  # it could not be read, and nothing was judged
    assert "a named pipe" in done.out


@pytest.mark.parametrize("arguments", [("inspect", "{}"), ("inspect", "{}", "--output", "json"), ("explain",), ("--help",), ("contracts",)])
def test_a_full_disk_is_the_environments_fault(arguments: tuple[str, ...], tmp_path: Path) -> None:
    tree = write_checkpoint(tmp_path / "tree", {"a.weight": ("F8_E4M3", (4, 4)), "a.weight_scale_inv": ("F32", (9, 9))})
    command = [str(TENSORHUB), *(each.format(tree) for each in arguments)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60)
    assert done.returncode == 3
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "fault of tensorhub-contracts" not in done.stderr


@pytest.mark.parametrize("form", ["text", "junit", "github", "sarif"])
def test_names_of_tensors_drive_no_report(form: str, tmp_path: Path) -> None:
    names = {f"{HOSTILE}.weight": ("F8_E4M3", (4, 4)), f"{HOSTILE}.weight_scale_inv": ("F32", (9, 9))}
    done = tensorhub("inspect", write_checkpoint(tmp_path / "tree", names), "--output", form)
    assert done.code == 1
    assert not {"\u202e", "\u2028", "\x1b", "\r"} & {*done.out}
    assert not [line for line in done.out.splitlines() if line.lstrip().startswith("::error") and "owned" in line and "title=" not in line]
    if form == "junit":
        texts = [text for element in Xml.fromstring(done.out).iter() for text in (*element.attrib.values(), element.text or "")]
        assert [text for text in texts if "owned" in text]
        assert not [line for text in texts for line in text.splitlines() if line.startswith("::error")]

"""What goes to which stream: a bar on a terminal alone, reports on standard output, faults with exit code 3."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import tensorhub_decoders.upcast.strips as decoding
import torch

from tensorhub_contracts.commands import main
from tests.support.cli import on_a_terminal
from tests.support.conversions import ROWWISE, done, noise, run, save

_BAR = """
import time
from tensorhub_contracts.commands import progress
progress.PATIENCE = {patience}
with progress.progress_bar("quantizing", in_bytes=True) as advance:
    print("watched" if advance else "nobody")
    for part in range(1, 4):
        if advance:
            advance(part * 1_000_000, 3_000_000)
"""


def test_a_bar_appears_on_a_terminal_when_it_takes_long() -> None:
    slow = on_a_terminal(sys.executable, "-c", _BAR.format(patience=0))
    assert slow.out == "watched\n"
    assert "quantizing" in slow.terminal
    quick = on_a_terminal(sys.executable, "-c", _BAR.format(patience=60))
    assert "quantizing" not in quick.terminal


def test_no_bar_and_no_report_on_the_other_stream(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"a.weight": noise(16, 16)})
    found = run("produce", source, tmp_path / "a", "--to", ROWWISE)
    assert found.err == "quantizing 1 tensor:\n  a.weight  [16, 16]\n"
    assert found.out.startswith(f"{tmp_path / 'a'}\n  contract  {ROWWISE}  sha256:")
    report = tmp_path / "report.json"
    found = run("decode", tmp_path / "a", tmp_path / "b", "--to", "plain.f32@1", "--output", f"json={report}", "--output", "text")
    assert json.loads(report.read_text())["decoded"] == ["a.weight"]
    assert "decoded   1 tensor" in found.out


def test_a_refusal_names_everything_on_standard_error_and_is_a_problem_as_json(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"a.weight": noise(16, 15), "b.weight": noise(16, 14)})
    found = run("produce", source, tmp_path / "a", "--to", ROWWISE)
    assert (found.code, found.out) == (1, "")
    assert [line.partition(":")[0] for line in found.err.splitlines()] == ["weight-alignment"] * 2
    problem = run("produce", source, tmp_path / "a", "--to", ROWWISE, "--output", "json").report
    assert problem["type"] == "urn:tensorhub:refusal:weight-alignment"
    assert problem["status"] == 422


def test_a_wrong_bit_exits_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done("produce", save(tmp_path / "source", {"a.weight": noise(16, 16)}), tmp_path / "fp8", "--to", ROWWISE)

    def wrong(weight: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.zero_()

    monkeypatch.setattr(decoding, "upcast_row_scaled", wrong)
    monkeypatch.setattr(sys, "argv", ["tensorhub", "decode", str(tmp_path / "fp8"), str(tmp_path / "dense"), "--to", "plain.bf16@1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "a.weight: the decoded weight is not what the reference dequant" in streams.err
    assert "fault of tensorhub-contracts" in streams.err
    assert not (tmp_path / "dense").exists()

"""An inspection leaves the garbage collector as it found it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tests.support.trees import bf16, judge


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(tmp_path: Path, enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = judge(tmp_path / "tree", bf16("a.weight", 2, 2), {}).path
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        inspect(tree)
        assert gc.isenabled() is enabled
        inspect(tmp_path / "nowhere")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()

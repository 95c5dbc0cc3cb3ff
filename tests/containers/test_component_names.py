"""The components that a message lists come in order, however the folder lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import inspect


def test_folders_are_listed_in_order_where_no_index_of_components_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vae", "transformer", "text_encoder", "a"):
        (tmp_path / name).mkdir()
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self), reverse=True)))
    (violation,) = inspect(tmp_path, "unet").violations
    assert violation.found == "the components a, text_encoder, transformer, vae"


def test_five_snapshots_of_a_hub_cache_are_listed_in_order(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / "snapshots" / f"r{number}").mkdir(parents=True)
    (violation,) = inspect(tmp_path).violations
    assert violation.found == "a hub cache with the snapshots r0, r1, r2, r3, r4"

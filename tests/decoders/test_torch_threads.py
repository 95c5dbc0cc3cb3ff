"""Loading has threads of its own, and leaves torch's number of threads to everyone else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tensorhub_contracts import load
from tests.support.checkpoint_files import write_checkpoint


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_a_new_thread() -> int:
    """Return how many threads torch has in a thread that is yet to start: a number of its own, taken from the last one that was set."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.usefixtures("three_threads")
def test_threads_that_start_after_a_load_have_what_they_had_before_it(tmp_path: Path) -> None:
    assert in_a_new_thread() == 3
    load(write_checkpoint(tmp_path / "tree", {"a.weight": ("BF16", (8, 8))}), dtype="F16", resident=False)
    assert (torch.get_num_threads(), in_a_new_thread()) == (3, 3)

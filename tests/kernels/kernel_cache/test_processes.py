"""Processes that use the compile cache at once, and one that is killed while it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.cubin import read_cubin_file

from tests.kernels.support.small_sources import OTHER, PLAIN

RACE = """
import sys, time
from tensorhub_cuda.nvrtc.cache import find_cubin
from tensorhub_cuda.nvrtc.compile import supported_architectures
supported_architectures()
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range(3):
    found = find_cubin(sys.argv[1].replace("1.0f", f"{number}.0f"), 90)
    print(found.origin, found.digest, bool(found.path))
"""


def test_processes_that_compile_the_same_at_once(folder: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RACE, PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert all(len(lines) == 3 for lines in answers)
    for number in range(3):
        assert len({lines[number].split()[1] for lines in answers}) == 1  # one digest, whoever compiled
        assert all(lines[number].split()[2] == "True" for lines in answers)
    files = list(folder.iterdir())
    assert len(files) == 3
    assert all(read_cubin_file(file) is not None for file in files)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_loaded(folder: Path, compiled: list[int]) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tensorhub_cuda.nvrtc.cache import find_cubin\n"
        "Path.replace = lambda self, other: os._exit(9)\nfind_cubin(sys.argv[1], 90)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, PLAIN], timeout=120).returncode == 9
    (left,) = folder.iterdir()
    assert left.name.endswith(".partial")
    assert find_cubin(PLAIN, 90).origin == "compiled"
    assert find_cubin(PLAIN, 90).origin == "cache"
    assert left.exists()  # it might be another process at work
    os.utime(left, (time.time() - 7200,) * 2)
    find_cubin(OTHER, 90)
    assert not left.exists()

"""Which kernel serves a call, from plain numbers: every boundary, and the two refusals by name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorhub_cuda.catalog import ARCHITECTURES, KERNELS
from tensorhub_cuda.errors import KernelUnavailable
from tensorhub_cuda.launch.choose import choose_kernel, compute_path_of, is_aligned, kernels_of, quantize_kernel

M8, M16, TILE = "block_fp8_w8a16_small_m8", "block_fp8_w8a16_small_m16", "block_fp8_w8a16_tile"


@pytest.mark.parametrize(
    ("m", "k", "aligned", "name"),
    [
        (1, 4096, True, M8),
        (8, 4096, True, M8),
        (8, 4095, False, M8),
        (9, 4096, True, M16),
        (16, 4096, True, M16),
        (17, 4096, True, TILE),
        (17, 4096, False, M16),
        (17, 4095, True, M16),
        (17, 4104, True, M16),
        (4096, 4112, True, TILE),
        (4096, 1, False, M16),
    ],
)
def test_w8a16_by_rows_and_layout(m: int, k: int, aligned: bool, name: str) -> None:
    assert choose_kernel("w8a16", m, k, 90, aligned).name == name
    assert compute_path_of("w8a16", m, k, 90, aligned) == f"cuda.nvrtc.{name}"


@given(m=st.integers(1, 2**31 - 1), k=st.integers(1, 2**31 - 1), sm=st.sampled_from([75, 80, 86, 89, 90, 100, 120]), aligned=st.booleans())
def test_what_is_chosen_serves_the_call(m: int, k: int, sm: int, aligned: bool) -> None:
    vector_loads = aligned and k % 16 == 0
    for compute, floor in (("w8a16", 80), ("w8a32", 75), ("w8a8", 89)):
        decided_by = "alignment" if compute == "w8a8" and not vector_loads else "floor" if sm < floor else None
        if decided_by is not None:  # the layout is judged before the hardware
            with pytest.raises(KernelUnavailable, check=lambda error, decided_by=decided_by: error.decided_by == decided_by):
                choose_kernel(compute, m, k, sm, aligned)
            continue
        chosen = choose_kernel(compute, m, k, sm, aligned)
        assert chosen.compute == compute
        assert sm >= chosen.minimum_sm
        assert vector_loads or not chosen.needs_alignment
        assert chosen in kernels_of(compute), "prepared too"
        assert "small" not in chosen.name or m <= chosen.tile_m or not vector_loads


def test_full_precision_takes_anything() -> None:
    assert {choose_kernel("w8a32", m, k, 75, aligned=False).name for m in (1, 17, 5000) for k in (1, 127, 4096)} == {"block_fp8_w8a32_tile"}


@pytest.mark.parametrize(("k", "aligned", "sm"), [(4095, True, 90), (4096, False, 90), (4104, True, 80)])
def test_w8a8_is_refused_for_its_layout(k: int, aligned: bool, sm: int) -> None:
    with pytest.raises(KernelUnavailable) as caught:
        choose_kernel("w8a8", 4, k, sm, aligned)
    assert (caught.value.decided_by, caught.value.object) == ("alignment", "block_fp8_w8a8_tile")
    assert str(k) in caught.value.found
    assert "w8a16" in caught.value.remedy


@pytest.mark.parametrize(("compute", "sm", "floor"), [("w8a8", 80, 89), ("w8a8", 86, 89), ("w8a16", 75, 80), ("w8a32", 70, 75)])
def test_minimum_compute_capabilities(compute: str, sm: int, floor: int) -> None:
    with pytest.raises(KernelUnavailable) as caught:
        choose_kernel(compute, 4, 4096, sm, aligned=True)
    assert caught.value.decided_by == "floor"
    assert (f"sm_{floor}" in caught.value.expected, caught.value.found) == (True, f"sm_{sm}")
    assert choose_kernel(compute, 4, 4096, floor, aligned=True).compute == compute


@pytest.mark.parametrize("sm", [91, 101, 110, 122, 130])
@pytest.mark.parametrize("compute", ["w8a16", "w8a32", "w8a8"])
def test_no_kernel_is_claimed_for_a_device_that_nobody_looked_at(compute: str, sm: int) -> None:
    with pytest.raises(KernelUnavailable) as caught:
        choose_kernel(compute, 4, 4096, sm, aligned=True)
    assert (caught.value.decided_by, caught.value.found) == ("floor", f"sm_{sm}")
    assert "sm_90" in caught.value.expected
    assert str(caught.value.expected).count("sm_") == len(ARCHITECTURES)


def test_a_compute_that_there_is_not() -> None:
    for compute in ("w4a16", "quantize", "", "W8A16"):
        with pytest.raises(ValueError, match="w8a16, w8a32, w8a8"):
            choose_kernel(compute, 1, 128, 90, aligned=True)


def test_every_kernel_of_the_catalog_belongs_to_a_compute() -> None:
    assert {kernel for compute in ("w8a16", "w8a32", "w8a8") for kernel in kernels_of(compute)} == set(KERNELS)
    assert quantize_kernel() in kernels_of("w8a8")


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=5))
def test_alignment_is_of_all(byte_counts: list[int]) -> None:
    assert is_aligned(*byte_counts) == all(each % 16 == 0 for each in byte_counts)


def test_a_plan_needs_nothing_that_loads_or_compiles() -> None:
    code = "import sys, tensorhub_cuda.launch.choose; print(sorted(each for each in sys.modules if each.startswith('tensorhub_cuda')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ("", ".catalog", ".errors", ".launch", ".launch.choose")
    assert done.stdout.strip() == str([f"tensorhub_cuda{each}" for each in names])


def test_launching_needs_no_torch_and_no_cuda() -> None:
    code = "import sys, tensorhub_cuda.launch.choose, tensorhub_cuda.launch.driver; print({'torch', 'cuda', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"

"""What a GPU will be given, as far as it can be tried without one: probes, timings, peers, torch's checks; and the page about kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensorhub_cuda.catalog import KERNELS
from tensorhub_cuda.nvrtc.compile import compile_cubin

from tests.kernels.oracle.fixture_files import FOLDER, read_manifest, read_tensors
from tests.kernels.receipt import checks, peers, primitive_checks, timers, timings, torch_checks
from tests.kernels.receipt.cases import read_cases
from tests.kernels.receipt.checks import Receipt
from tests.kernels.receipt.machine import Machine
from tests.kernels.receipt.receipt_files import write_receipt

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("sm", [80, 89, 90, 100, 120])
def test_the_probes_compile_for_every_architecture(sm: int) -> None:
    probes = {probe.name for probe in primitive_checks.probes(read_tensors(FOLDER / "conversions.safetensors")) if probe.minimum_sm <= sm}
    code = compile_cubin(primitive_checks.source(), sm).code
    assert not [name for name in probes if f".text.{name}\0".encode() not in code]


def test_the_page_for_kernel_engineers_knows_every_kernel() -> None:
    """Its table is compared with the catalog: name, lane, minimum compute capability, tile, threads, shared memory, what it takes."""
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    for each in KERNELS:
        lane = "quantizes for w8a8" if each.compute == "quantize" else each.compute
        takes = "K % 16 = 0, rows on 16 bytes" if each.needs_alignment else "any K, stride and alignment"
        tile = f"{each.tile_m} \N{MULTIPLICATION SIGN} {each.tile_n}"
        assert f"| `{each.name}` | {lane} | sm_{each.minimum_sm} | {tile} | {each.threads} | {each.shared_bytes:,} | {takes} |" in page
    assert page.count("| `") == len(KERNELS), "no kernel that there is not"


def test_timings_make_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of the timings but the clock, on host memory: a fault in them would cost time on a GPU."""

    def answer(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, *_unused: object) -> torch.Tensor:
        spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (x.float() @ (weight.view(torch.float8_e4m3fn).float() * spread).t()).to(x.dtype)

    def one_launch(launch: Callable[[int], object], rotations: int) -> float:
        launch(rotations - 1)
        return 12.5

    monkeypatch.setattr(timings, "block_fp8_linear", answer)
    monkeypatch.setattr(timings, "prepare", lambda *_unused: None)
    monkeypatch.setattr(timings, "microseconds", one_launch)
    monkeypatch.setattr(timings, "rotations_for", lambda *_unused: 3)
    receipt = Receipt(1e9, says=lambda line: None)
    receipt.check("timings: ceilings", lambda: "copy 4 GB/s")
    ceilings = timers.Ceilings(copy_bytes=4e9, bf16_operations=1e12)
    timings._check_shape(receipt, Machine(torch.device("cpu"), 0, 90), ceilings, 256, 384, 16, peers=True)
    assert not receipt.of("failed"), receipt.of("failed")
    assert {check.name for check in receipt.of("passed")} >= {f"timings: {lane} N=256 K=384 M=16" for lane in ("w8a16", "w8a8", "w8a32")}
    assert "peer: torch BF16 linear N=256 K=384 M=16" in {check.name for check in receipt.of("passed")}
    assert len([check for check in receipt.checks if check.name.startswith("peer: ")]) == len(peers.PEERS)
    write_receipt(tmp_path, receipt.as_document(on_gpu=True))
    page = (tmp_path / "receipt.md").read_text(encoding="utf-8")
    moved = 256 * 384 + 2 * 3 * 4 + 16 * 384 * 2 + 16 * 256 * 2
    assert f"| 256 | 384 | 16 | w8a16 | block_fp8_w8a16_small_m16 | 12.50 | {moved / 4e9 * 1e6:.2f} | {moved / 12.5e-6 / 4e9:.2f} |" in page


def test_a_wrong_peer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "block_fp8_linear", lambda x, weight, *_unused: torch.ones(x.shape[0], weight.shape[0]))
    of = peers.Projection.random(128, 128, 2, torch.device("cpu"), 2)
    with pytest.raises(checks.NotRunError, match="called wrongly"):
        timings._time_peer(of, lambda of: lambda index: torch.zeros(2, 128))


def test_what_torch_says_of_the_operator_can_be_asked() -> None:
    """The same checks on the operator's CPU implementation, so that they are known to work before a GPU asks.

    It rounds code times scale to BF16, which the judge tells from w8a16, once compiled and eager calls were the same.
    """
    import tensorhub_decoders.resident.multiply  # noqa: F401  registers the operator's CPU implementation

    case = next(case for case in read_cases(read_manifest(), FOLDER) if case.name == "tails/w8a16")
    machine = Machine(torch.device("cpu"), 0, 90)
    assert "test_schema" in torch_checks._opcheck(machine, case)
    with pytest.raises(checks.CheckFailedError, match="elements wrong, the first at"):
        torch_checks._compiled(machine, case, "eager")

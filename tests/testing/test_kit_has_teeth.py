"""The conformance kit fails decoders that are wrong in the ways in which decoders have been wrong, and passes the right one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from tensorhub_decoders.decoding import decode_units

from tensorhub_contracts import Inspection, OwnedContracts, Registry, inspect, read_contracts
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.plugin_contracts import with_owned
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing import DecoderContractTests, SampleUnit
from tensorhub_contracts.testing.header_faults import HEADER_FAULTS
from tensorhub_contracts.testing.numbers import encoded, rounded_to_f32, values
from tensorhub_contracts.testing.sample_units import sample_units

Dequantize = Callable[[dict[str, torch.Tensor], torch.dtype], torch.Tensor]
HANDLE = "hf.fp8-blockwise@1"


def wide(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    grown = scale.float().repeat_interleave(128, -2)[..., : shape[-2], :]
    return grown.repeat_interleave(128, -1)[..., : shape[-1]]


def right(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    return (unit["weight"].float() * wide(unit["scale"], unit["weight"].shape)).to(out)


def scale_rounded_to_bf16_first(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    return right({**unit, "scale": unit["scale"].bfloat16()}, out)


def roundings_fused(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    product = unit["weight"].double() * wide(unit["scale"], unit["weight"].shape).double()
    if out is not torch.bfloat16:
        return product.to(out)
    bits = product.view(torch.int64)  # torch and ml_dtypes go from F64 to BF16 through F32, which is what must not happen here
    return ((bits + 0xFFF_FFFF_FFFF + ((bits >> 45) & 1)) >> 45 << 45).view(torch.float64).to(out)


def no_nan_branch(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    codes = unit["weight"].float()
    return (codes.nan_to_num(480.0) * wide(unit["scale"], codes.shape)).to(out)


def block_from_shapes(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    rows = unit["weight"].shape[-2]
    block = -(-rows // unit["scale"].shape[-2])
    grown = unit["scale"].float().repeat_interleave(block, -2)[..., :rows, :]
    return (unit["weight"].float() * grown.repeat_interleave(128, -1)[..., : unit["weight"].shape[-1]]).to(out)


def divided_by_scale(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    return (unit["weight"].float() / wide(unit["scale"], unit["weight"].shape)).to(out)


def subnormals_flushed(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    product = unit["weight"].float() * wide(unit["scale"], unit["weight"].shape)
    return torch.where(product.abs() < 2.0**-126, torch.zeros_like(product), product).to(out)


def negative_zero_lost(unit: dict[str, torch.Tensor], out: torch.dtype) -> torch.Tensor:
    return right(unit, out) + 0.0


class Kit(DecoderContractTests):
    """The kit over one decoder, without pytest collecting it."""

    __test__ = False
    contract = HANDLE
    decoder = "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise"

    def __init__(self, dequantize: Dequantize = right, change: Callable[[Iterable[tuple[str, Any, str]]], Any] = iter) -> None:
        self.dequantize = dequantize
        self.change = change

    def decode(self, inspection: Inspection, *, lane: str, dtype: str) -> Iterable[tuple[str, Any, str]]:
        return self.change(
            decode_units(inspection, self.dequantize, contract=self.contract, lane=lane, dtype=dtype, compute_path="cpu.test")
        )  # type: ignore[arg-type]


def test_the_right_decoder_passes(tmp_path: Path) -> None:
    Kit().test_decoded_weights_are_exact(tmp_path / "exact")
    Kit().test_nothing_is_lost_and_no_scale_is_left_over(tmp_path / "whole")
    Kit().test_a_wrong_scale_would_be_seen(tmp_path / "moved")


WRONG = [
    scale_rounded_to_bf16_first,
    roundings_fused,
    no_nan_branch,
    block_from_shapes,
    divided_by_scale,
    subnormals_flushed,
    negative_zero_lost,
]


@pytest.mark.parametrize("dequantize", WRONG, ids=lambda each: each.__name__)
def test_a_wrong_decoder_fails(dequantize: Dequantize, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="element"):
        Kit(dequantize).test_decoded_weights_are_exact(tmp_path)


def without_last(pairs: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    yield from list(pairs)[:-1]


def with_a_scale(pairs: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    yield from pairs
    yield "model.layers.0.proj.weight_scale_inv", torch.zeros(1, 1), ""


def one_twice(pairs: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    held = list(pairs)
    yield from [*held, held[0]]


def dense_cast(pairs: Iterable[tuple[str, Any, str]]) -> Iterator[tuple[str, Any, str]]:
    yield from ((name, tensor.bfloat16() if tensor.dtype is torch.float32 else tensor, path) for name, tensor, path in pairs)


@pytest.mark.parametrize("change", [without_last, with_a_scale, one_twice, dense_cast], ids=lambda each: each.__name__)
def test_a_decoder_that_loses_or_adds_or_casts_a_tensor_fails(change: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Kit(change=change).test_nothing_is_lost_and_no_scale_is_left_over(tmp_path)


def test_a_decoder_that_ignores_its_scales_is_seen_by_the_control(tmp_path: Path) -> None:
    class Ignoring(Kit):
        def reference(self, unit: SampleUnit) -> list[float]:
            return unit.tensors["weight"].values

    with pytest.raises(AssertionError, match="a moved scale changes nothing"):
        Ignoring(lambda unit, out: unit["weight"].to(out)).test_a_wrong_scale_would_be_seen(tmp_path)


def test_a_contract_that_nobody_installed_is_said_so(tmp_path: Path) -> None:
    class Absent(Kit):
        contract = "acme.absent@1"

    with pytest.raises(AssertionError, match=r"no installed plugin decodes acme\.absent@1"):
        Absent().test_the_declaration_is_that_of_the_registered_contract()
    with pytest.raises(AssertionError, match=r"no installed plugin owns acme\.absent@1"):
        Absent().test_a_sound_tree_is_accepted(tmp_path)


def test_a_reference_must_be_given_for_a_dequant_that_is_not_shipped() -> None:
    class Unwritten(Kit):
        def _facts(self) -> Contract:
            return owned()["acme.loose@1"]

    with pytest.raises(AssertionError, match="override `reference`"):
        Unwritten().reference(next(sample_units(owned()["acme.loose@1"])))


def owned() -> OwnedContracts:
    return read_contracts(
        """
schema = 1
producer = "acme"
[[contract]]
handle = "acme.loose@1"
summary = "A contract that admits two shapes of its scale."
element = "F8_E4M3"
evidence = "code"
reference_dequant = "none"
floors = { "fp8-w8a16" = "none" }
not_provable = ["values"]
source = "Made up."
[[contract.form]]
name = "matrix"
tensors.weight = { name = "{module}.weight", dtypes = ["F8_E4M3"], shapes = [["out", "in"]] }
tensors.scale = { name = "{module}.weight_scale", dtypes = ["F32"], shapes = [["anything"]], optional = true }
"""
    )


def test_a_contract_that_proves_too_little_fails_the_header_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form whose scale is optional and of any length accepts what the kit damages."""
    registry: Registry = with_owned(load_registry(), owned())

    class Loose(Kit):
        contract = "acme.loose@1"

        def _registry(self) -> Registry:
            return registry

    def judged(path: Path, contract: str) -> Inspection:
        return inspect(path, contract=contract, registry=registry)

    monkeypatch.setattr("tensorhub_contracts.testing.conformance.inspect", judged)
    with pytest.raises(AssertionError, match="missing scale in form matrix"):
        Loose().test_damaged_units_are_refused_by_name(tmp_path)


def test_the_kit_knows_every_fault_by_a_sentence() -> None:
    assert all(fault.__doc__ for fault in HEADER_FAULTS.values())
    assert len(HEADER_FAULTS) == 6


# ------------------------------------------------------------ the kit's own arithmetic, against ml_dtypes and numpy

CODES = bytes(range(256))


SMALL = [
    ("F8_E4M3", ml_dtypes.float8_e4m3fn),
    ("F8_E5M2", ml_dtypes.float8_e5m2),
    ("F8_E8M0", ml_dtypes.float8_e8m0fnu),
    ("I8", np.int8),
]


@pytest.mark.parametrize(("dtype", "kind"), SMALL)
def test_every_code_has_the_value_that_ml_dtypes_gives_it(dtype: str, kind: Any) -> None:
    expected = np.frombuffer(CODES, kind).astype(np.float64)
    assert np.array_equal(np.array(values(dtype, CODES)), expected, equal_nan=True)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.signbit(values(dtype, CODES))[numbers], np.signbit(expected)[numbers])


@pytest.mark.parametrize(("dtype", "kind"), [("BF16", ml_dtypes.bfloat16), ("F16", np.float16)])
def test_every_half_is_read_and_written_back(dtype: str, kind: Any) -> None:
    stored = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        expected = stored.view(kind).astype(np.float64)
    found = values(dtype, stored.tobytes())
    assert np.array_equal(np.array(found), expected, equal_nan=True)
    finite = ~np.isnan(expected)
    assert np.array_equal(np.frombuffer(encoded(dtype, found), np.uint16)[finite], stored[finite])


@pytest.mark.parametrize(("dtype", "kind"), [("BF16", ml_dtypes.bfloat16), ("F16", np.float16)])
def test_rounding_is_to_nearest_even(dtype: str, kind: Any) -> None:
    generator = np.random.default_rng(20)
    bits = generator.integers(0, 2**32, 20_000, dtype=np.uint32)
    ties = (generator.integers(0, 2**16, 2_000, dtype=np.uint32) << 16) + np.uint32(0x8000)
    numbers = np.concatenate([bits, ties, bits & np.uint32(0x807FFFFF)]).view(np.float32)
    numbers = numbers[~np.isnan(numbers)]
    with np.errstate(over="ignore"):
        expected = numbers.astype(kind).view(np.uint16)
    assert np.array_equal(np.frombuffer(encoded(dtype, numbers.tolist()), np.uint16), expected)


def test_products_are_rounded_once_to_f32() -> None:
    generator = np.random.default_rng(21)
    codes = np.frombuffer(CODES, ml_dtypes.float8_e4m3fn).astype(np.float32)
    scales = generator.integers(0, 2**31 - 2**24, 500, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = np.outer(codes, scales)
    found = [[rounded_to_f32(float(code) * float(scale)) for scale in scales] for code in codes]
    assert np.array_equal(np.array(found, np.float32), expected, equal_nan=True)
    assert math.isinf(rounded_to_f32(1e39))
    assert rounded_to_f32(-1e39) == -math.inf

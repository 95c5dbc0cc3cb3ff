"""Resident FP8 projections on the CPU: weights stay bytes whatever is done, and the numbers are those of the upcast weight."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import tensorhub_decoders.upcast.cutting as cutting
import torch
from tensorhub_decoders.resident.linear import BlockFp8Linear, ResidentLinear, RowFp8Linear
from tensorhub_decoders.upcast.reference import dequantize_block_scaled, dequantize_row_scaled
from torch.nn import functional

SHAPES = [(384, 256), (130, 257), (1, 5), (576, 300)]


def codes(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 7919 + columns)
    stored = torch.randint(0, 256, (rows, columns), dtype=torch.uint8, generator=generator)
    stored[(stored & 0x7F) == 0x7F] = 0x31
    return stored.view(torch.float8_e4m3fn)


def scales(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator) * 1e-2 + 1e-4


def block(rows: int, columns: int, bits: int = 16, bias: torch.Tensor | None = None) -> BlockFp8Linear:
    return BlockFp8Linear(codes(rows, columns), scales(-(-rows // 128), -(-columns // 128)), bias, activation_bits=bits)


def row(rows: int, columns: int, bits: int = 16, bias: torch.Tensor | None = None) -> RowFp8Linear:
    return RowFp8Linear(codes(rows, columns), scales(rows), bias, activation_bits=bits)


def meant(module: ResidentLinear, dtype: torch.dtype) -> torch.Tensor:
    dequantize = dequantize_block_scaled if isinstance(module, BlockFp8Linear) else dequantize_row_scaled
    return dequantize(module.codes, module.scale, out_dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("make", [block, row])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_one_strip_it_is_bitwise_the_dense_projection(
    make: Callable[..., ResidentLinear], shape: tuple[int, int], dtype: torch.dtype
) -> None:
    bias = torch.randn(shape[0]).to(dtype)
    module = make(*shape, 32 if dtype is torch.float32 else 16, bias)
    for size in ((1,), (3,), (2, 5), (17,), (0,)):
        x = torch.randn(*size, shape[1]).to(dtype)
        y = module(x)
        assert y.dtype is dtype
        assert y.shape == (*size, shape[0])
        assert torch.equal(y, functional.linear(x, meant(module, dtype), bias))


@pytest.mark.parametrize("make", [block, row])
def test_in_many_strips_it_is_the_dense_projection(make: Callable[..., ResidentLinear], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64: every strip lands on its rows, and a strip that used other scales would be far off."""
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", 20_000)
    module = make(576, 300, 32)
    x = torch.randn(4, 300)
    exact = x.double() @ meant(module, torch.float32).double().t()
    assert len(list(cutting.strips(576, 300, least=cutting.BLOCK, join_rest=True))) > 4
    assert float((module(x).double() - exact).abs().max() / exact.abs().max()) < 1e-6
    other = make(576, 300, 32)
    other.stored.scale = other.scale.flip(0)
    assert float((other(x).double() - exact).abs().max() / exact.abs().max()) > 1e-2, "the control: other scales are seen"


def test_a_slice_of_a_unit_carries_its_origin() -> None:
    whole = block(400, 140, 32)
    x = torch.randn(3, 140)
    for begin, end in ((100, 300), (128, 256), (399, 400), (0, 5)):
        part = BlockFp8Linear(whole.codes[begin:end], whole.scale, activation_bits=32, first_row=begin)
        assert torch.equal(part(x), functional.linear(x, meant(whole, torch.float32)[begin:end]))
    wrong = BlockFp8Linear(whole.codes[100:300], whole.scale[:2], activation_bits=32)
    assert not torch.equal(wrong(x), functional.linear(x, meant(whole, torch.float32)[100:300])), "without its origin it is another weight"


CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "to bfloat16": lambda module: module.to(torch.bfloat16),
    "to float16": lambda module: module.to(dtype=torch.float16),
    "to float64": lambda module: module.to(torch.float64),
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "float": lambda module: module.float(),
    "double": lambda module: module.double(),
    "to cpu and bfloat16": lambda module: module.to("cpu", torch.bfloat16),
    "type": lambda module: module.type(torch.float16),
    "train": lambda module: module.train(),
    "requires_grad_": lambda module: module.requires_grad_(True),
    "share_memory": lambda module: module.share_memory(),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("make", [block, row])
def test_no_cast_reaches_weight_or_scale(make: Callable[..., ResidentLinear], cast: str) -> None:
    module = make(130, 257, 16, torch.randn(130))
    before = module.codes.view(torch.uint8).clone(), module.scale.clone()
    parent = torch.nn.Sequential(module, torch.nn.Linear(130, 3))
    after = CASTS[cast](parent)[0]
    assert after.codes.dtype is torch.float8_e4m3fn
    assert after.scale.dtype is torch.float32
    assert torch.equal(after.codes.view(torch.uint8), before[0])
    assert torch.equal(after.scale, before[1])
    x = torch.randn(2, 257).bfloat16()
    with torch.no_grad():
        assert torch.equal(after(x), functional.linear(x, meant(after, torch.bfloat16), after.bias.bfloat16()))


def test_a_move_takes_the_stored_tensors_along_and_a_cast_with_it_does_not_reach_them() -> None:
    """The meta device stands for another one."""
    for move in (
        lambda module: module.to("meta"),
        lambda module: module.to("meta", torch.float16),
        lambda module: module.to_empty(device="meta"),
    ):
        module = move(block(130, 257, 16, torch.randn(130)))
        assert {tensor.device.type for tensor in (module.codes, module.scale, module.bias)} == {"meta"}
        assert (module.codes.dtype, module.scale.dtype) == (torch.float8_e4m3fn, torch.float32)
        assert (module.codes.shape, module.scale.shape) == ((130, 257), (2, 3))


@pytest.mark.parametrize("make", [block, row])
def test_codes_and_scales_are_neither_parameters_nor_buffers(make: Callable[..., ResidentLinear]) -> None:
    """Nothing that walks over parameters, an optimizer or a cast, finds them; the bias is one without gradients."""
    module = make(130, 257, 16, torch.randn(130))
    assert not module.training
    assert [(name, parameter.requires_grad) for name, parameter in module.named_parameters()] == [("bias", False)]
    assert not list(module.buffers())
    assert not isinstance(module.codes, torch.nn.Parameter)
    assert not isinstance(module.scale, torch.nn.Parameter)
    assert list(make(130, 257).parameters()) == []


def test_a_slice_keeps_its_origin_through_copies_and_state() -> None:
    """What a unit knows beside its tensors goes with it."""
    whole = block(400, 140, 32)
    part = BlockFp8Linear(whole.codes[100:300], whole.scale, activation_bits=32, first_row=100)
    x = torch.randn(3, 140)
    expected = part(x)
    other = BlockFp8Linear(torch.zeros(200, 140).to(torch.float8_e4m3fn), torch.ones(4, 2), activation_bits=32, first_row=100)
    other.load_state_dict(part.state_dict())
    buffer = io.BytesIO()
    torch.save(part, buffer)
    buffer.seek(0)
    for again in (other, copy.deepcopy(part), part.half(), torch.load(buffer, weights_only=False)):
        assert torch.equal(again(x), expected)


def test_a_copy_shares_nothing() -> None:
    module = block(130, 257)
    copied = copy.deepcopy(module)
    copied.codes.view(torch.uint8).zero_()
    assert bool(module.codes.view(torch.uint8).any())


@pytest.mark.parametrize("make", [block, row])
def test_the_state_dict_has_the_names_and_bytes_of_the_checkpoint(make: Callable[..., ResidentLinear]) -> None:
    module = torch.nn.ModuleDict({"proj": make(130, 257, 16, torch.randn(130))})
    state = module.state_dict()
    scale_name = module["proj"].stored.scale_name
    assert set(state) == {"proj.weight", f"proj.{scale_name}", "proj.bias"}
    assert state["proj.weight"].dtype is torch.float8_e4m3fn
    other = torch.nn.ModuleDict({"proj": make(130, 257, 16, torch.zeros(130))})
    other["proj"].stored.scale = torch.ones_like(other["proj"].scale)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    assert other.load_state_dict(torch.load(buffer, weights_only=True)) == ([], [])
    assert torch.equal(other["proj"].codes.view(torch.uint8), module["proj"].codes.view(torch.uint8))
    assert torch.equal(other["proj"].scale, module["proj"].scale)
    assert torch.equal(other["proj"].bias, module["proj"].bias)


def test_a_state_that_would_have_to_be_cast_is_an_error() -> None:
    module = block(130, 257)
    state = dict(module.state_dict())
    for change in (
        {"weight": state["weight"].float()},
        {"weight": state["weight"].view(torch.uint8)},
        {"weight_scale_inv": state["weight_scale_inv"].bfloat16()},
        {"weight_scale_inv": state["weight_scale_inv"].t()},
        {"weight_scale_inv": -state["weight_scale_inv"]},
    ):
        with pytest.raises((RuntimeError, ValueError), match=r"expected|negative"):
            module.load_state_dict({**state, **change})
    with pytest.raises(RuntimeError, match="weight_scale_inv"):
        module.load_state_dict({"weight": state["weight"]})
    assert torch.equal(module.scale, state["weight_scale_inv"])


def test_a_module_can_be_pickled_and_means_the_same() -> None:
    module = block(130, 257, 16, torch.randn(130))
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    x = torch.randn(2, 257).bfloat16()
    assert torch.equal(again(x), module(x))


def test_weights_take_one_byte_an_element() -> None:
    module = block(1024, 1024)
    held = [module.codes, module.scale, *module.parameters(), *module.buffers()]
    assert sum(tensor.untyped_storage().nbytes() for tensor in held) == 1024 * 1024 + 4 * 64
    assert not list(module.buffers())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8], ids=str)
def test_activations_of_another_lane_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="activations of 16 bits"):
        block(4, 4)(torch.zeros(1, 4, dtype=dtype))
    with pytest.raises(ValueError, match="activations of 32 bits"):
        block(4, 4, 32)(torch.zeros(1, 4).bfloat16())


def test_values_that_a_resident_lane_cannot_compute_with_are_refused() -> None:
    weight = codes(130, 257)
    good = scales(2, 3)
    poisoned = weight.clone()
    poisoned.view(torch.uint8)[5, 6:9] = torch.tensor([0x7F, 0xFF, 0x7F], dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"^3 NaN codes$"):
        BlockFp8Linear(poisoned, good, activation_bits=16)
    for bad in (-1.0, float("nan"), float("inf")):
        changed = good.clone()
        changed[1, 2] = bad
        with pytest.raises(ValueError, match=r"^1 scales that are negative or not finite$"):
            BlockFp8Linear(weight, changed, activation_bits=16)
        with pytest.raises(ValueError, match=r"^3 NaN codes, 1 scales that are negative or not finite$"):
            BlockFp8Linear(poisoned, changed, activation_bits=16)
    zero = good.clone()
    zero[0, 0] = 0.0
    BlockFp8Linear(weight, zero, activation_bits=16)  # a block of zeros is no fault


@pytest.mark.parametrize("shape", [(3, 2), (2, 2), (2, 4), (6,), (1, 2, 3)])
def test_a_grid_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        BlockFp8Linear(codes(130, 257), torch.ones(shape), activation_bits=16)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        BlockFp8Linear(torch.zeros(4, 4), torch.ones(1, 1), activation_bits=16)
    with pytest.raises(ValueError, match="activation_bits"):
        BlockFp8Linear(codes(4, 4), torch.ones(1, 1), activation_bits=4)
    with pytest.raises(ValueError, match="expected"):
        RowFp8Linear(codes(4, 4), torch.ones(1, 4), activation_bits=16)


@pytest.mark.parametrize("make", [block, row])
def test_a_models_own_code_may_multiply_with_the_weight_and_nothing_else(make: Callable[..., ResidentLinear]) -> None:
    module, x = make(200, 130), torch.randn(3, 130).to(torch.bfloat16)
    assert torch.equal(functional.linear(x, module.weight), module(x))
    assert module.weight.shape == (200, 130)
    for use in (
        lambda w: w.to(torch.bfloat16),
        lambda w: w.view(2, 100, 130),
        lambda w: w.dtype,
        lambda w: x @ w.T,
        lambda w: torch.matmul(x, w),
    ):
        with pytest.raises((AttributeError, TypeError)):
            use(module.weight)


def test_activations_of_another_width_are_refused() -> None:
    for shape in ((2, 140), (0, 70), (130,)):
        with pytest.raises(ValueError, match="columns"):
            block(200, 131)(torch.zeros(shape, dtype=torch.bfloat16))


def test_no_gradient_is_recorded_in_part() -> None:
    x = torch.randn(3, 130, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no gradient"):
        block(200, 130)(x)
    biased = block(200, 130, bias=torch.zeros(200, dtype=torch.bfloat16)).requires_grad_(True)
    with pytest.raises(NotImplementedError, match="no gradient"):
        biased(x.detach())
    with torch.no_grad():
        assert not block(200, 130)(x).requires_grad
        assert not biased(x).requires_grad


def test_activations_on_another_device_are_refused() -> None:
    """The meta device stands for another one."""
    module = block(200, 130).to("meta")
    with pytest.raises(ValueError, match="activations on cpu for weights on meta"):
        module(torch.zeros(2, 130, dtype=torch.bfloat16))
    assert module(torch.zeros(2, 130, dtype=torch.bfloat16, device="meta")).shape == (2, 200)

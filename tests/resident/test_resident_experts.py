"""Stacks of experts that stay FP8: one matrix at a time, by the checkpoint's names, in the place of a model's parameter."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from tensorhub_decoders.resident.experts import ResidentExperts, SeparateExperts, StackedExperts, put_experts
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight
from tensorhub_decoders.upcast.reference import dequantize_block_scaled
from torch.nn import functional


def unit(*shape: int, seed: int = 0) -> BlockStoredWeight:
    torch.manual_seed(seed)
    scale = torch.rand(*shape[:-2], -(-shape[-2] // 128), -(-shape[-1] // 128)) * 1e-2 + 1e-4
    return BlockStoredWeight(torch.randn(shape).to(torch.float8_e4m3fn), scale)


def separate() -> SeparateExperts:
    """Three experts, each a gate of 160 rows above an up projection of 130."""
    units = [[unit(160, 200, seed=2 * each), unit(130, 200, seed=2 * each + 1)] for each in range(3)]
    names = [[(f"{each}.{what}.weight", f"{each}.{what}.weight_scale_inv") for what in ("gate", "up")] for each in range(3)]
    return SeparateExperts(units, names, activation_bits=32)


def stacked() -> StackedExperts:
    return StackedExperts(unit(3, 290, 200), ("gate_up", "gate_up_scale_inv"), activation_bits=32)


def meant(experts: ResidentExperts, expert: int) -> torch.Tensor:
    return torch.cat([dequantize_block_scaled(each.weight, each.scale, out_dtype=torch.float32) for each in experts.units_of(expert)])


@pytest.mark.parametrize("make", [separate, stacked])
def test_each_expert_is_its_own_matrix(make: Any) -> None:
    experts = make()
    x = torch.randn(5, 200)
    assert (experts.shape, len(experts)) == ((3, 290, 200), 3)
    for expert in range(3):
        expected = functional.linear(x, meant(experts, expert))
        assert torch.equal(functional.linear(x, experts[expert]), expected)
        assert torch.equal(functional.linear(x, experts[torch.tensor(expert)]), expected)
    assert len(list(experts)) == 3
    assert not list(experts.parameters())
    assert not experts.training


@pytest.mark.parametrize("make", [separate, stacked])
def test_what_is_not_one_expert_is_an_error(make: Any) -> None:
    experts = make()
    with pytest.raises(IndexError):
        experts[3]
    for wrong in (slice(0, 2), 1.5, torch.tensor([0, 1]), torch.tensor(0.5), None, (0, 1), "0"):
        with pytest.raises(TypeError):
            experts[wrong]


def pickled(module: torch.nn.Module) -> Any:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("make", [separate, stacked])
def test_a_holder_hands_on_what_a_state_has(make: Any) -> None:
    """The names are those below the holder, where torch would not look for them."""

    def holder() -> torch.nn.Module:
        inner = torch.nn.Module()
        inner.register_parameter("gate_up", torch.nn.Parameter(torch.zeros(3, 290, 200), requires_grad=False))
        experts = make()
        put_experts(inner, "gate_up", experts)
        return torch.nn.ModuleDict({"experts": inner})

    first, second = holder(), holder()
    state = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    assert set(state) == {f"experts.{name}" for each in make().stored_weights() for name in each[:2]}
    for name, tensor in state.items():
        tensor.view(torch.uint8).bitwise_xor_(0x80) if tensor.dtype is torch.float8_e4m3fn else tensor.mul_(0.5)
        assert name.startswith("experts.")
    for other in (second, copy.deepcopy(first), pickled(first)):
        assert other.load_state_dict(state) == ([], [])
        assert all(torch.equal(other.state_dict()[name].view(torch.uint8), state[name].view(torch.uint8)) for name in state)
        with pytest.raises(RuntimeError, match="Unexpected key"):
            other.load_state_dict({**state, "experts.9.gate.weight": torch.zeros(1)})
    for name in state:
        with pytest.raises(RuntimeError, match="Missing key") as caught:
            second.load_state_dict({each: tensor for each, tensor in state.items() if each != name})
        assert name in str(caught.value)


def test_experts_of_other_shapes_and_names_are_refused() -> None:
    names = [[("0.weight", "0.weight_scale_inv")], [("1.weight", "1.weight_scale_inv")]]
    with pytest.raises(ValueError, match="one shape"):
        SeparateExperts([[unit(128, 128)], [unit(129, 128)]], names, activation_bits=16)
    with pytest.raises(ValueError, match="a name for every unit"):
        SeparateExperts([[unit(128, 128)], [unit(128, 128)]], names[:1], activation_bits=16)
    with pytest.raises(ValueError, match="three dimensions"):
        StackedExperts(unit(128, 128), ("a", "b"), activation_bits=16)

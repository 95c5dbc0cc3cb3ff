"""Where codes and scales of resident modules lie: on one device, which a cast does not change, and in memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensorhub_decoders.resident.linear import BlockFp8Linear
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight


def codes() -> torch.Tensor:
    return torch.zeros(130, 257, dtype=torch.uint8).view(torch.float8_e4m3fn)


def linear() -> BlockFp8Linear:
    return BlockFp8Linear(codes(), torch.ones(2, 3), torch.zeros(130), activation_bits=16)


CASTS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "half": lambda module: module.half(),
    "to a dtype": lambda module: module.to(torch.float64),
    "train": lambda module: module.train(),
    "requires_grad_": lambda module: module.requires_grad_(True),
}


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_moves_nothing_to_another_device(cast: str) -> None:
    """The meta device stands for one that is not the CPU."""
    module = CASTS[cast](linear().to("meta"))
    assert {tensor.device.type for tensor in (module.codes, module.scale, module.bias)} == {"meta"}
    assert (module.codes.dtype, module.scale.dtype) == (torch.float8_e4m3fn, torch.float32)


def test_codes_and_a_scale_that_lie_apart_come_to_one_device() -> None:
    for weight, scale in ((codes(), torch.ones(2, 3, device="meta")), (codes().to("meta"), torch.ones(2, 3))):
        moved = BlockStoredWeight(weight, scale).to(torch.device("meta"))
        assert (moved.weight.device.type, moved.scale.device.type) == ("meta", "meta")


def test_a_module_shares_no_memory_with_the_state_that_it_was_loaded_from() -> None:
    module = linear()
    state = {"weight": codes(), "weight_scale_inv": torch.full((2, 3), 2.0), "bias": torch.zeros(130)}
    module.load_state_dict(dict(state))
    state["weight"].view(torch.uint8).fill_(0x38)
    state["weight_scale_inv"].fill_(5.0)
    assert not bool(module.codes.view(torch.uint8).any())
    assert torch.equal(module.scale, torch.full((2, 3), 2.0))

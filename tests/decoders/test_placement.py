"""Tensors that say where a loader puts units: what can be followed says which units lie where, anything else is an error by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensorhub_decoders.transformers_models.placeholders import PlaceholderTensor

from tensorhub_contracts import Violation


def unit(name: str, *shape: int, refused: list[Violation] | None = None) -> PlaceholderTensor:
    return PlaceholderTensor(shape, torch.bfloat16, ((name,),), [] if refused is None else refused)


def test_it_has_a_shape_and_a_dtype_and_no_memory() -> None:
    huge = unit("a", 1 << 20, 1 << 20)
    assert (huge.shape, huge.dtype, huge.device.type, huge.is_contiguous()) == ((1 << 20, 1 << 20), torch.bfloat16, "cpu", True)
    assert repr(unit("a", 2, 3)) == "PlaceholderTensor((2, 3), (('a',),))"


SAME: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.dtype]] = {
    "whole": (lambda tensor: tensor[...], torch.bfloat16),
    "detach": (lambda tensor: tensor.detach(), torch.bfloat16),
    "clone": (lambda tensor: tensor.clone(), torch.bfloat16),
    "contiguous": (lambda tensor: tensor.contiguous(), torch.bfloat16),
    "to a dtype": (lambda tensor: tensor.to(torch.float16), torch.float16),
    "to a dtype by name": (lambda tensor: tensor.to(device="cpu", dtype=torch.float32), torch.float32),
    "to a device": (lambda tensor: tensor.to("cpu"), torch.bfloat16),
    "half": (lambda tensor: tensor.half(), torch.float16),
    "parameter": (lambda tensor: torch.nn.Parameter(tensor, requires_grad=False), torch.bfloat16),
}


@pytest.mark.parametrize("change", SAME)
def test_what_passes_a_tensor_on_is_followed(change: str) -> None:
    function, dtype = SAME[change]
    refused: list[Violation] = []
    passed = function(unit("a", 5, 3, refused=refused))
    assert isinstance(passed, PlaceholderTensor)
    assert (passed.shape, passed.dtype, passed.matrices, refused) == ((5, 3), dtype, (("a",),), [])
    assert passed.refused is refused


def test_experts_that_are_stacked_and_joined_are_followed_in_either_order() -> None:
    refused: list[Violation] = []

    def each(what: str, rows: int) -> list[torch.Tensor]:
        return [unit(f"{number}.{what}", rows, 7, refused=refused) for number in range(3)]

    stacked_first: Any = torch.cat([torch.stack(each("gate", 5)), torch.stack(each("up", 4))], dim=1)
    joined_first: Any = torch.stack([torch.cat(pair, dim=0) for pair in zip(each("gate", 5), each("up", 4), strict=True)], dim=0)
    backwards: Any = torch.cat([torch.stack(each("gate", 5)), torch.stack(each("up", 4))], dim=-2)
    for fused in (stacked_first, joined_first, backwards):
        assert fused.shape == (3, 9, 7)
        assert fused.matrices == (("0.gate", "0.up"), ("1.gate", "1.up"), ("2.gate", "2.up"))
    order: Any = torch.cat([torch.stack(each("up", 4)), torch.stack(each("gate", 5))], dim=1)
    assert order.matrices[0] == ("0.up", "0.gate")
    assert refused == []


def test_a_projection_that_is_joined_along_rows_is_followed() -> None:
    joined: Any = torch.cat([unit("q", 8, 6), unit("k", 2, 6), unit("v", 2, 6)])
    assert (joined.shape, joined.matrices) == ((12, 6), (("q", "k", "v"),))
    alone: Any = torch.cat([unit("q", 8, 6)])
    assert (alone.shape, alone.matrices) == ((8, 6), (("q",),))


REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "transpose": lambda a, b: a.transpose(0, 1),
    "t": lambda a, b: a.t(),
    "T": lambda a, b: a.T,
    "permute": lambda a, b: a.permute(1, 0),
    "chunk": lambda a, b: a.chunk(2),
    "split": lambda a, b: a.split(2),
    "split by sizes": lambda a, b: a.split([1, 3]),
    "slice": lambda a, b: a[1:],
    "row": lambda a, b: a[0],
    "narrow": lambda a, b: a.narrow(0, 0, 2),
    "index_select": lambda a, b: a.index_select(0, torch.tensor([1, 0])),
    "view": lambda a, b: a.view(2, 2, 4),
    "reshape": lambda a, b: a.reshape(8, 2),
    "flatten": lambda a, b: a.flatten(),
    "unsqueeze": lambda a, b: a.unsqueeze(0),
    "flip": lambda a, b: a.flip(0),
    "repeat": lambda a, b: a.repeat(2, 1),
    "plus": lambda a, b: a + 1,
    "times": lambda a, b: a * 2.0,
    "mul_": lambda a, b: a.mul_(2.0),
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: torch.ones(3, 4, dtype=torch.bfloat16) @ a,
    "fill": lambda a, b: a.fill_(0),
    "copy into": lambda a, b: torch.empty(4, 4, dtype=torch.bfloat16).copy_(a),
    "copy from": lambda a, b: a.copy_(torch.zeros(4, 4)),
    "equal": lambda a, b: torch.equal(a, b),
    "sum": lambda a, b: a.sum(),
    "item": lambda a, b: a.max().item(),
    "cat along columns": lambda a, b: torch.cat([a, b], dim=1),
    "cat along the last": lambda a, b: torch.cat([a, b], dim=-1),
    "stack along another": lambda a, b: torch.stack([a, b], dim=1),
    "stack of stacks": lambda a, b: torch.stack([torch.stack([a, b])]),
    "stacks one after the other": lambda a, b: torch.cat([torch.stack([a, b]), torch.stack([a, b])], dim=0),
    "stacks along columns": lambda a, b: torch.cat([torch.stack([a, b]), torch.stack([a, b])], dim=2),
    "stacks of other heights": lambda a, b: torch.cat([torch.stack([a, b]), torch.stack([a])], dim=1),
    "a stack that is split": lambda a, b: torch.stack([a, b]).chunk(2, dim=1),
    "one of a stack": lambda a, b: torch.stack([a, b])[0],
    "cat with a dense one": lambda a, b: torch.cat([a, torch.zeros(4, 4, dtype=torch.bfloat16)]),
    "stack with a dense one": lambda a, b: torch.stack([torch.zeros(4, 4, dtype=torch.bfloat16), a]),
    "tolist": lambda a, b: a.tolist(),
    "numpy": lambda a, b: a.float().numpy(),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_anything_else_is_an_error_and_is_noted_by_name(change: str) -> None:
    refused: list[Violation] = []
    a, b = (unit(f"layers.0.{name}.weight", 4, 4, refused=refused) for name in "ab")
    with pytest.raises((TypeError, RuntimeError)):
        REFUSED[change](a, b)
    if change in ("tolist", "numpy"):
        return  # torch itself refuses them, for want of memory
    assert {each.code for each in refused} == {"resident-placement"}
    assert refused[0].object == "layers.0.a.weight"
    assert "aten." in refused[0].found
    assert "resident=False" in refused[0].remedy


def test_every_unit_of_what_cannot_be_followed_is_named() -> None:
    refused: list[Violation] = []
    fused = torch.stack([torch.cat([unit(f"{n}.{what}", 4, 4, refused=refused) for what in ("gate", "up")]) for n in range(2)])
    with pytest.raises(TypeError, match=r"transpose.*stays as it is stored"):
        fused.transpose(1, 2)
    assert [each.object for each in refused] == ["0.gate", "0.up", "1.gate", "1.up"]


def test_a_stacked_unit_is_only_passed_on() -> None:
    """Its experts have no names of their own: joining it with another, even one expert high, loses which is which."""
    refused: list[Violation] = []
    stack: Any = unit("experts.gate_up_proj", 3, 8, 6, refused=refused)
    assert stack[...].to(torch.float32).matrices == (("experts.gate_up_proj",),)
    for joined in (lambda: torch.cat([stack, stack], dim=1), lambda: torch.stack([stack])):
        with pytest.raises(TypeError):
            joined()
    assert {each.object for each in refused} == {"experts.gate_up_proj"}

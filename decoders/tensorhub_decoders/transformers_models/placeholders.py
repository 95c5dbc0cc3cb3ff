"""Finds out where a model's loader puts a unit, without memory: a tensor that has a shape and says which units it is made of.

A loader renames tensors, stacks those of experts and joins projections. It does so with such tensors as with any; what
becomes a parameter then says which units lie in it, and how. What a loader does otherwise with one is an error, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import torch

from tensorhub_contracts import Violation

#: For each expert of a stack, or the one matrix of a projection, the names of its units, which lie one after the other along rows.
Matrices = tuple[tuple[str, ...], ...]

_ATEN = torch.ops.aten
_SAME = (_ATEN.alias.default, _ATEN.detach.default, _ATEN.clone.default, _ATEN._to_copy.default)


class PlaceholderTensor(torch.Tensor):
    """A tensor without memory: `matrices` names the units that it is made of, and `refused` collects what cannot be followed.

    A unit that is stored as a stack has `matrices` of one name, and is only passed on.
    """

    matrices: Matrices
    refused: list[Violation]

    @staticmethod
    def __new__(cls, shape: Sequence[int], dtype: torch.dtype, matrices: Matrices, refused: list[Violation]) -> Self:
        made: Self = torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=dtype, device=torch.device("cpu"))
        made.matrices = matrices
        made.refused = refused
        return made

    def __repr__(self, **ignored: object) -> str:  # type: ignore[override]  # a tensor's own takes keywords that say nothing here
        return f"PlaceholderTensor({tuple(self.shape)}, {self.matrices})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it as if it were no class method
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Follow what a loader does: pass on, stack and join. Anything else is noted in `refused`, and raises TypeError."""
        if func in _SAME:
            return cls(args[0].shape, (kwargs or {}).get("dtype") or args[0].dtype, args[0].matrices, args[0].refused)
        placed = _placed(args)
        dimension = args[1] if len(args) > 1 else (kwargs or {}).get("dim", 0)
        matrices = _JOINS[func](args[0], dimension) if func in _JOINS and len(placed) == len(args[0]) else None
        if matrices is None:
            placed[0].refused += [_not_followed(name, str(func)) for part in placed for matrix in part.matrices for name in matrix]
            raise TypeError(f"{func} of a unit that stays as it is stored")
        shape = func([torch.empty(part.shape, device="meta") for part in placed], dimension).shape
        return cls(shape, placed[0].dtype, matrices, placed[0].refused)


def _not_followed(name: str, function: str) -> Violation:
    expected = "a unit that the model holds whole, joined with others along rows, or as one expert of a stack"
    return Violation(code="resident-placement", object=name, expected=expected, found=function, remedy=REMEDY)


#: What to do about a unit that a model does not take as it is stored.
REMEDY: Final = "Load it with resident=False: this model needs the weight as an ordinary tensor."


def _stack(parts: Sequence[PlaceholderTensor], dimension: int) -> Matrices | None:
    """Return the matrices of experts that are put on one another."""
    if dimension != 0 or any(part.dim() != 2 for part in parts):
        return None
    return tuple(part.matrices[0] for part in parts)


def _join(parts: Sequence[PlaceholderTensor], dimension: int) -> Matrices | None:
    """Return the matrices of projections that are joined along rows, or of two stacks that are joined expert by expert."""
    counts = {len(part.matrices) for part in parts}
    separate = all(len(part.matrices) == (part.shape[0] if part.dim() == 3 else 1) for part in parts)
    if dimension not in (parts[0].dim() - 2, -2) or len(counts) != 1 or not separate:
        return None
    return tuple(tuple(name for part in parts for name in part.matrices[index]) for index in range(counts.pop()))


_JOINS: Final[dict[Any, Callable[[Sequence[PlaceholderTensor], int], Matrices | None]]] = {
    _ATEN.stack.default: _stack,
    _ATEN.cat.default: _join,
}


def _placed(values: Any) -> list[PlaceholderTensor]:
    if isinstance(values, PlaceholderTensor):
        return [values]
    return [each for value in values for each in _placed(value)] if isinstance(values, (list, tuple)) else []

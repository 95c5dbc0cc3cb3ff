"""The reference dequants of the registry, by name, over Python floats: each written from its formula, none from a decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorhub_contracts.testing.sample_units import SampleUnit


def block_scaled(unit: SampleUnit) -> list[float]:
    """`f32(code[o, i]) * f32(scale[o // 128, i // 128])`, for each expert anew; exact, to be rounded by the caller."""
    codes, scales = unit.tensors["weight"].values, unit.tensors["scale"].values
    rows, columns = unit.symbols["out"], unit.symbols["in"]
    down, across = -(-rows // 128), -(-columns // 128)
    return [
        codes[(expert * rows + row) * columns + column] * scales[(expert * down + row // 128) * across + column // 128]
        for expert in range(unit.symbols.get("experts", 1))
        for row in range(rows)
        for column in range(columns)
    ]


def row_scaled(unit: SampleUnit) -> list[float]:
    """`f32(code[o, i]) * f32(scale[o])`; exact, to be rounded by the caller."""
    columns = unit.symbols["in"]
    scales = unit.tensors["scale"].values
    return [code * scales[place // columns] for place, code in enumerate(unit.tensors["weight"].values)]


def unscaled(unit: SampleUnit) -> list[float]:
    """`f32(code)`."""
    return unit.tensors["weight"].values


#: The name in the registry to the formula.
FORMULAS: Final[dict[str, Callable[[SampleUnit], list[float]]]] = {
    "hf.fp8_blockwise.dequant@1": block_scaled,
    "cozy.fp8_rowwise.dequant@1": row_scaled,
    "cozy.fp8_storage.dequant@1": unscaled,
}

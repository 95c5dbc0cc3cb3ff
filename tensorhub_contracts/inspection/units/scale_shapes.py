"""Says in words what the shape of a scale looks like beside its weight. For messages only: no layout is inferred."""

from __future__ import annotations

from tensorhub_contracts.checkpoints.geometry import write_shape


def describe_grid(weight: tuple[int, ...], scale: tuple[int, ...]) -> str:
    """Return what the scale's shape looks like for a weight of this shape, or an empty string."""
    if all(size == 1 for size in scale):
        return "one element, a scale for the whole tensor"
    if len(weight) < 2:
        return ""
    out, inner = weight[-2:]
    named = {  # rows come last, because on a square weight they are what is meant
        (1, inner): "one for each column, [1, in]",
        (inner, 1): "as many as columns, [in, 1]",
        (inner,): "as many as columns, [in]",
        (1, out): "as many as rows, transposed to [1, out]",
        (out, 1): "one for each row, [out, 1]",
        (out,): "one for each row, [out]",
    }
    tail = scale[-2:] if len(scale) == len(weight) else scale
    if len(scale) == len(weight) and len(weight) > 2 and scale[:-2] != weight[:-2]:
        return ""
    if tail in named:
        return named[tail]
    if len(tail) != 2:
        return ""
    for rows, columns in ((128, 128), (64, 64), (32, 32), (256, 256), (1, 128), (1, 64), (1, 32), (1, 16)):
        if tail == (-(-out // rows), -(-inner // columns)):
            return f"the grid of {rows} x {columns} blocks"
    return ""


def explain_grid(weight: tuple[int, ...], scale: tuple[int, ...], expected: tuple[int, ...]) -> tuple[str, str]:
    """Return the code and the words for a scale whose shape is not the expected one."""
    if len(scale) != len(expected):
        return "scale-rank", describe_grid(weight, scale) or f"rank {len(scale)} where {len(expected)} was expected"
    if len(scale) >= 2 and scale == (*expected[:-2], expected[-1], expected[-2]):
        return "scale-grid-transposed", "the transposed grid"
    words = describe_grid(weight, scale)
    if not words and len(scale) == 1 and len(expected) == 1:
        words = f"{scale[0]} scales for {expected[0]} rows"
    elif not words and len(weight) == 3 and scale[1:] == expected[1:]:
        words = f"scales for {scale[0]} experts where the weight has {weight[0]}"
    return "scale-grid", words


def block_grid(weight: tuple[int, ...], block: tuple[int, int]) -> str:
    """Write the grid that a declared block asks for: `[8, 4]` for weight [512, 512] and block [64, 128]."""
    return write_shape((*weight[:-2], -(-weight[-2] // block[0]), -(-weight[-1] // block[1])))

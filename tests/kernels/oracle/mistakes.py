"""Known-bad answers: what a kernel with a named mistake would give. A judge that accepts one of them judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.oracle.number_formats import (
    NAN_CODES,
    Doubles,
    Floats,
    bf16_bits,
    decode_e4m3,
    fused_multiply_add,
    round_to_bf16,
)
from tests.kernels.oracle.problems import BLOCK, Problem, ceil_divide
from tests.kernels.oracle.references import Operands, double_sums, operands, quantize, specified_order, terms

_ANY = ("w8a32", "w8a16", "w8a8")


@dataclass(frozen=True)
class Mistake:
    """`answer` gives [m, n] in F32 or F64 before the rounding to the lane's output; `lanes` are those whose judge can tell it."""

    says: str
    answer: Callable[[str, Problem], Floats | Doubles]
    lanes: tuple[str, ...] = _ANY


def wrong_answer(name: str, lane: str, problem: Problem) -> NDArray[Any]:
    """Return a mistaken answer as a kernel would write it: F32 for w8a32, the 16 bits of BF16 otherwise."""
    return as_output(lane, MISTAKES[name].answer(lane, problem))


def as_output(lane: str, answer: Floats | Doubles) -> NDArray[Any]:
    """Round an answer to what a lane writes."""
    return answer.astype(np.float32) if lane == "w8a32" else bf16_bits(answer.astype(np.float32))


def _with_scales(scales: Callable[[Problem], Floats]) -> Callable[[str, Problem], Doubles]:
    """Return the answer of a kernel that multiplies by other scales [n, blocks of K]."""
    return lambda lane, problem: double_sums(replace(operands(lane, problem), scales=scales(problem)))[0]


def _with_operands(change: Callable[[Problem, Operands], Operands]) -> Callable[[str, Problem], Doubles]:
    """Return the answer of a kernel that multiplies other operands."""
    return lambda lane, problem: double_sums(change(problem, operands(lane, problem)))[0]


# Mistakes of scales. Each returns [n, blocks of K].


def _transposed(problem: Problem) -> Floats:
    rows, columns = problem.scale.shape
    return np.ascontiguousarray(problem.scale.T).reshape(rows, columns)[problem.grid_rows()]


def _rows_shared_evenly(problem: Problem) -> Floats:
    rows = problem.scale.shape[0]
    return problem.scale[np.arange(problem.shape.n) // ceil_divide(problem.shape.n, rows)]


def _last_row_of_blocks_missing(problem: Problem) -> Floats:
    return problem.scale[np.minimum(problem.grid_rows(), problem.scale.shape[0] - 2)]


def _last_block_of_k_missing(problem: Problem) -> Floats:
    scales = problem.block_scales()
    scales[:, -1] = 0
    return scales


def _origin_ignored(problem: Problem) -> Floats:
    return problem.scale[np.arange(problem.shape.n) // BLOCK]


def _member_rows_from_zero(problem: Problem) -> Floats:
    return problem.scale[np.concatenate([np.arange(rows) // BLOCK for rows in problem.shape.members])]


def _row_scale_of_block(problem: Problem) -> Floats:
    blocks = problem.block_scales().shape[1]
    return np.repeat(problem.scale[np.arange(problem.shape.n) // BLOCK][:, None], blocks, axis=1)


# Mistakes of operands.


def _k_tail_dropped(problem: Problem, of: Operands) -> Operands:
    kept = problem.shape.k // 16 * 16
    return replace(of, weight=of.weight[:, :kept], x=of.x[:, :kept])


def _stride_ignored(problem: Problem, of: Operands) -> Operands:
    n, k = problem.shape.n, problem.shape.k
    codes = problem.weight.reshape(-1)[: n * k].reshape(n, k)
    weight = decode_e4m3(codes)
    # What a decoder by bit placement makes of the two NaN codes.
    weight[np.isin(codes, NAN_CODES)] = 480.0
    return replace(of, weight=weight)


def _dequantized_to_bf16(problem: Problem, of: Operands) -> Operands:
    scales = np.repeat(of.scales, BLOCK, axis=1)[:, : problem.shape.k]
    return replace(of, weight=round_to_bf16(of.weight * scales), scales=np.ones_like(of.scales))


def _not_quantized(problem: Problem, of: Operands) -> Operands:
    return operands("w8a16", problem)


def _per_token_scale(problem: Problem, of: Operands) -> Operands:
    codes, scales = quantize(problem.x_bf16[:, : problem.shape.k], group=problem.shape.k)
    return replace(of, x=decode_e4m3(codes), x_scales=np.repeat(scales, of.scales.shape[1], axis=1))


# Mistakes of arithmetic.


def _one_accumulator(lane: str, problem: Problem) -> Floats:
    """Sum all of K into one accumulator, the scale multiplied into the weight."""
    of = operands(lane, problem)
    weight = of.weight * np.repeat(of.scales, BLOCK, axis=1)[:, : problem.shape.k]
    total = np.zeros((problem.shape.m, problem.shape.n), np.float32)
    for k in range(problem.shape.k):
        total = fused_multiply_add(of.x[:, k, None], weight[None, :, k], total)
    return total


def _two_roundings(lane: str, problem: Problem) -> Floats:
    """Round every product before it is added."""
    of = operands(lane, problem)
    total = np.zeros((problem.shape.m, problem.shape.n), np.float32)
    for block in range(of.scales.shape[1]):
        part = np.zeros_like(total)
        for k in range(block * BLOCK, min((block + 1) * BLOCK, problem.shape.k)):
            part = part + of.x[:, k, None] * of.weight[None, :, k]
        total = total + part * of.scales[None, :, block]
    return total


def _descending_k(lane: str, problem: Problem) -> Floats:
    """Sum each block of 128 from its end; K is a multiple of 128."""
    of = operands(lane, problem)

    def turned(rows: Floats) -> Floats:
        return rows.reshape(rows.shape[0], -1, BLOCK)[:, :, ::-1].reshape(rows.shape)

    return specified_order(replace(of, x=turned(of.x), weight=turned(of.weight)))


def _bf16_accumulator(lane: str, problem: Problem) -> Floats:
    """Keep the sum of all blocks in BF16."""
    total = np.zeros((problem.shape.m, problem.shape.n), np.float32)
    each = terms(operands(lane, problem))
    for start in range(0, len(each), BLOCK):
        total = round_to_bf16((total + sum(each[start : start + BLOCK])).astype(np.float32))
    return total


def _fp8_accumulator(lane: str, problem: Problem) -> Doubles:
    """Keep the sum over all of K in the 14 bits in which matrix units of sm_89 and sm_90 sum products of E4M3."""
    total = np.zeros((problem.shape.m, problem.shape.n))
    each = terms(operands(lane, problem))
    for start in range(0, len(each), 32):
        fraction, exponent = np.frexp(total + sum(each[start : start + 32]))
        total = np.ldexp(np.trunc(fraction * 2.0**14), exponent - 14)
    return total


def _bias_forgotten(problem: Problem, of: Operands) -> Operands:
    return replace(of, bias=None)


def _bias_after_rounding(lane: str, problem: Problem) -> Floats:
    of = operands(lane, problem)
    assert of.bias is not None
    return round_to_bf16(double_sums(replace(of, bias=None))[0].astype(np.float32)) + of.bias


def _unwritten_tail(lane: str, problem: Problem) -> Doubles:
    answer = double_sums(operands(lane, problem))[0]
    answer[:, -8:] = np.nan
    return answer


MISTAKES: Mapping[str, Mistake] = {
    "reciprocal-scale": Mistake("scales divide", _with_scales(lambda problem: np.float32(1) / problem.block_scales())),
    "transposed-grid": Mistake("the grid is read as [columns, rows]", _with_scales(_transposed)),
    "first-block-of-k": Mistake(
        "the scale of the first block of K is used for all of K",
        _with_scales(lambda problem: np.repeat(problem.block_scales()[:, :1], problem.block_scales().shape[1], axis=1)),
    ),
    "rows-shared-evenly": Mistake("a block has ceil(N / rows of the grid) rows and not 128", _with_scales(_rows_shared_evenly)),
    "last-row-of-blocks-missing": Mistake(
        "the short last row of blocks has the scales of the one before", _with_scales(_last_row_of_blocks_missing)
    ),
    "last-block-of-k-missing": Mistake("the short last block of K is left out", _with_scales(_last_block_of_k_missing)),
    "origin-ignored": Mistake("the grid row of output row n is n / 128, whatever scale_rows says", _with_scales(_origin_ignored)),
    "member-rows-from-zero": Mistake("every member's grid rows begin at 0", _with_scales(_member_rows_from_zero)),
    "row-scale-of-block": Mistake("a row grid is looked up by block of rows", _with_scales(_row_scale_of_block)),
    "scale-rounded-to-bf16": Mistake(
        "F32 scales are rounded to BF16", _with_scales(lambda problem: round_to_bf16(problem.block_scales())), ("w8a32", "w8a16")
    ),
    "k-tail-dropped": Mistake("the last K % 16 products are left out", _with_operands(_k_tail_dropped)),
    "stride-ignored": Mistake("rows of the weight are taken to follow each other without padding", _with_operands(_stride_ignored)),
    "dequantized-to-bf16": Mistake(
        "code · scale is rounded to BF16 before it is multiplied", _with_operands(_dequantized_to_bf16), ("w8a32", "w8a16")
    ),
    "not-quantized": Mistake("activations stay BF16", _with_operands(_not_quantized), ("w8a8",)),
    "per-token-scale": Mistake(
        "activations have one scale a token and not one a group of 128", _with_operands(_per_token_scale), ("w8a8",)
    ),
    "one-accumulator": Mistake("one accumulator over all of K, the scale multiplied into the weight", _one_accumulator, ("w8a32",)),
    "two-roundings": Mistake("products are rounded before they are added", _two_roundings, ("w8a32",)),
    "descending-k": Mistake("each block is summed from its end", _descending_k, ("w8a32",)),
    "bf16-accumulator": Mistake("the sum over blocks is kept in BF16", _bf16_accumulator, ("w8a16",)),
    "fp8-accumulator": Mistake("the sum over all of K is kept in 14 bits", _fp8_accumulator, ("w8a8",)),
    "bias-forgotten": Mistake("bias is not added", _with_operands(_bias_forgotten)),
    "bias-after-rounding": Mistake("bias is added after the rounding to BF16", _bias_after_rounding, ("w8a16",)),
    "unwritten-tail": Mistake("the last 8 columns are not written", _unwritten_tail),
}


def mistakes_of(lane: str, problem: Problem) -> tuple[str, ...]:
    """Return the names of the mistakes that a lane's judge must tell for a problem."""
    return tuple(name for name in problem.shape.mistakes if lane in MISTAKES[name].lanes)

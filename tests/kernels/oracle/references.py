"""The right answers of a problem: w8a32 in the specified order bit for bit, w8a16 and w8a8 in F64 over the exact values that are stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.kernels.oracle.number_formats import (
    LARGEST,
    Codes,
    Doubles,
    Floats,
    decode_e4m3,
    encode_e4m3,
    fused_multiply_add,
    round_to_bf16,
)
from tests.kernels.oracle.problems import BLOCK, Problem

#: The least largest value of a group of activations: a group of zeros has a scale too.
LEAST_AMAX = np.float32(1e-12)


@dataclass(frozen=True)
class Operands:
    """What a lane multiplies: weight [n, k] and x [m, k] as F32, scales [n, blocks], bias [n].

    `x_scales` [m, blocks] and `x_codes` [m, k] are of w8a8, where `x` holds the values of the codes.
    """

    weight: Floats
    x: Floats
    scales: Floats
    bias: Floats | None
    x_scales: Floats | None = None
    x_codes: Codes | None = None


def operands(lane: str, problem: Problem) -> Operands:
    """Return what a lane multiplies for a problem, padding left out."""
    k = problem.shape.k
    weight = decode_e4m3(np.ascontiguousarray(problem.weight[:, :k]))
    if lane == "w8a32":
        return Operands(weight, problem.x[:, :k], problem.block_scales(), problem.bias)
    x = problem.x_bf16[:, :k]
    bias = None if problem.bias is None else round_to_bf16(problem.bias)
    if lane == "w8a16":
        return Operands(weight, x, problem.block_scales(), bias)
    codes, x_scales = quantize(x)
    return Operands(weight, decode_e4m3(codes), problem.block_scales(), bias, x_scales, codes)


def quantize(x: Floats, group: int = BLOCK) -> tuple[Codes, Floats]:
    """Return E4M3 codes [m, k] and scales [m, groups] of activations: scale = max(largest, 1e-12) / 448, code = nearest even of x / scale.

    Both divisions are IEEE divisions in F32. A short last group has a scale of its own members.
    """
    columns = []
    codes = np.empty(x.shape, np.uint8)
    for start in range(0, x.shape[1], group):
        part = x[:, start : start + group]
        scale = np.maximum(np.abs(part).max(axis=1), LEAST_AMAX) / np.float32(LARGEST)
        codes[:, start : start + group] = encode_e4m3(part / scale[:, None])
        columns.append(scale)
    return codes, np.stack(columns, axis=1)


def specified_order(of: Operands) -> Floats:
    """Return w8a32's answer, [m, n]: F32, each step rounded once, in one order.

    part = fma(x[k], w[k], part) from 0 for k ascending inside a block of 128; acc = fma(part, scale, acc) for blocks ascending; + bias.
    """
    accumulator = np.zeros((of.x.shape[0], of.weight.shape[0]), np.float32)
    for block in range(of.scales.shape[1]):
        part = np.zeros_like(accumulator)
        for k in range(block * BLOCK, min((block + 1) * BLOCK, of.x.shape[1])):
            part = fused_multiply_add(of.x[:, k, None], of.weight[None, :, k], part)
        accumulator = fused_multiply_add(part, np.broadcast_to(of.scales[None, :, block], part.shape), accumulator)
    return accumulator if of.bias is None else accumulator + of.bias


def double_sums(of: Operands) -> tuple[Doubles, Doubles]:
    """Return the answer in F64 and the sum of the sizes of its terms, both [m, n].

    A loop over k and no matrix product: a library's product sums in an order of its own, and the files must have the same bytes everywhere.
    """
    total = np.zeros((of.x.shape[0], of.weight.shape[0]))
    magnitude = np.zeros_like(total)
    for term in terms(of):
        total += term
        magnitude += np.abs(term)
    if of.bias is not None:
        total += of.bias
        magnitude += np.abs(of.bias)
    return total, magnitude


def terms(of: Operands) -> list[Doubles]:
    """Return x · w · scales for every k, each [m, n] in F64."""
    weight = of.weight.astype(np.float64) * np.repeat(of.scales.astype(np.float64), BLOCK, axis=1)[:, : of.weight.shape[1]]
    x = of.x.astype(np.float64)
    if of.x_scales is not None:
        x = x * np.repeat(of.x_scales.astype(np.float64), BLOCK, axis=1)[:, : x.shape[1]]
    return [x[:, k, None] * weight[None, :, k] for k in range(x.shape[1])]

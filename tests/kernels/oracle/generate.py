"""Writes the oracle: for each problem a safetensors file, and a manifest of their digests and of what every case tells apart.

    PYTHONPATH=. python tests/kernels/oracle/generate.py [FOLDER]

Independent of the kernels: `ml_dtypes`, numpy and exact arithmetic, nothing of ours. The files are committed, because the machine with a
GPU may have no `ml_dtypes`; a test writes them again and compares every digest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels.oracle.fixture_files import FOLDER, MANIFEST, Tensor, describe_files, write_tensors
from tests.kernels.oracle.mistakes import MISTAKES, as_output, mistakes_of, wrong_answer
from tests.kernels.oracle.number_formats import bf16_bits, decode_e4m3, encode_e4m3
from tests.kernels.oracle.problems import BLOCK, SHAPES, Problem, Shape, make_problem
from tests.kernels.oracle.references import double_sums, operands, quantize, specified_order
from tests.kernels.oracle.verdicts import TOLERANCES, judge

#: Counts changes of what is written.
GENERATOR_VERSION = 1


class OracleError(Exception):
    """The oracle contradicts itself: a known-bad answer passes, or a right one does not."""


def write_oracle(folder: Path, manifest_path: Path) -> None:
    """Write every file into `folder` and the manifest; raises OracleError when a judge accepts a known-bad answer."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for shape in SHAPES:
        problem = make_problem(shape)
        tensors = _stored_problem(problem)
        for lane in shape.lanes:
            tensors.update(_answers(lane, problem))
            cases.append(_describe(lane, shape))
        write_tensors(folder / f"{shape.name}.safetensors", tensors)
    write_tensors(folder / "conversions.safetensors", _conversions())
    manifest = {"generator": GENERATOR_VERSION, "tolerances": TOLERANCES, "files": describe_files(folder), "cases": cases}
    manifest_path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _stored_problem(problem: Problem) -> dict[str, Tensor]:
    """Return what goes in: the weight's original bytes, scales in a checkpoint's dtype, both precisions of x and bias."""
    scale: Tensor = ("BF16", bf16_bits(problem.scale)) if problem.shape.scale_dtype == "BF16" else ("F32", problem.scale)
    stored: dict[str, Tensor] = {
        "weight": ("F8_E4M3", problem.weight),
        "scale": scale,
        "x_f32": ("F32", problem.x),
        "x_bf16": ("BF16", bf16_bits(problem.x)),
    }
    if problem.scale_rows is not None:
        stored["scale_rows"] = ("I32", problem.scale_rows)
    if problem.bias is not None:
        stored["bias_f32"] = ("F32", problem.bias)
        stored["bias_bf16"] = ("BF16", bf16_bits(problem.bias))
    return stored


def _answers(lane: str, problem: Problem) -> dict[str, Tensor]:
    """Return the right answer and the known-bad ones, after the judge has accepted the one and refused the others."""
    of = operands(lane, problem)
    total, magnitude = double_sums(of)
    expected = specified_order(of) if lane == "w8a32" else total
    terms = magnitude.astype(np.float32)
    right = judge(lane, as_output(lane, expected), expected, terms)
    if not right.passed:
        raise OracleError(f"{problem.shape.name}/{lane}: the right answer is refused: {right.detail}")
    stored: dict[str, Tensor] = {}
    if lane == "w8a32":
        stored["w8a32.expected"] = ("F32", expected)
    else:
        stored[f"{lane}.expected"] = ("F64", expected)
        stored[f"{lane}.magnitude"] = ("F32", terms)
    if of.x_codes is not None and of.x_scales is not None:
        stored["w8a8.x_codes"] = ("F8_E4M3", of.x_codes)
        stored["w8a8.x_scale"] = ("F32", of.x_scales)
    for name in mistakes_of(lane, problem):
        wrong = wrong_answer(name, lane, problem)
        if judge(lane, wrong, expected, terms).passed:
            raise OracleError(f"{problem.shape.name}/{lane}: the answer with the mistake {name} is accepted")
        stored[f"{lane}.wrong.{name}"] = ("F32" if lane == "w8a32" else "BF16", wrong)
    return stored


def _describe(lane: str, shape: Shape) -> dict[str, Any]:
    return {
        "name": f"{shape.name}/{lane}",
        "file": f"{shape.name}.safetensors",
        "lane": lane,
        "grid": shape.grid,
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "weight_stride": shape.k + shape.weight_padding,
        "x_stride": shape.k + shape.x_padding,
        "scale_dtype": shape.scale_dtype,
        "scale_rows": bool(shape.members or shape.first_row),
        "bias": shape.bias,
        "distinguishes": shape.distinguishes,
        "known_bad": {name: MISTAKES[name].says for name in shape.mistakes if lane in MISTAKES[name].lanes},
    }


def _conversions() -> dict[str, Tensor]:
    """Return tables for single primitives: all 256 codes, F32 values to BF16, F32 values to codes, activations to codes and scales."""
    codes = np.arange(256, dtype=np.uint8)
    finite = decode_e4m3(codes)[np.isfinite(decode_e4m3(codes))]
    # Every value and every middle between two neighbours, a hair beside each, and what lies beyond the largest.
    ordered = np.unique(finite)
    middles = (ordered[1:] + ordered[:-1]) / np.float32(2)
    around = [np.nextafter(middles, np.float32(sign * np.inf), dtype=np.float32) for sign in (1, -1)]
    e4m3_inputs = np.concatenate([ordered, middles, *around, np.float32([448.1, 464, 1e6, -1e6, 1e-12])])
    # The upper half of an F32 with a lower half that rounds down, is a tie, or rounds up; zeros, subnormals and the largest among them.
    upper = np.concatenate([np.arange(0x3F7E, 0x3F83), np.arange(0, 4), np.arange(0x7F7D, 0x7F7F), np.arange(0xBF7E, 0xBF83)])
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    bf16_inputs = ((upper[:, None].astype(np.uint32) << 16) | lower.astype(np.uint32)).reshape(-1).view(np.float32)
    # Groups of activations: ordinary ones, zeros, one that is tiny, one with a single large value, and a short last group.
    activations = make_problem(next(shape for shape in SHAPES if shape.name == "tile")).x_bf16[:6, : 2 * BLOCK + 19].copy()
    activations[1, :BLOCK] = 0
    activations[2, :BLOCK] *= np.float32(2.0**-60)
    activations[3, BLOCK] = 30000.0
    activation_bits = bf16_bits(activations)
    rounded = (activation_bits.astype(np.uint32) << 16).view(np.float32)
    x_codes, x_scale = quantize(rounded)
    return {
        "codes": ("F8_E4M3", codes),
        "codes.f32": ("F32", decode_e4m3(codes)),
        "codes.bf16": ("BF16", bf16_bits(decode_e4m3(codes))),
        "f32_to_bf16.inputs": ("F32", bf16_inputs),
        "f32_to_bf16.bits": ("BF16", bf16_bits(bf16_inputs)),
        "f32_to_e4m3.inputs": ("F32", e4m3_inputs),
        "f32_to_e4m3.codes": ("F8_E4M3", encode_e4m3(e4m3_inputs)),
        "quantize.x": ("BF16", activation_bits),
        "quantize.codes": ("F8_E4M3", x_codes),
        "quantize.scale": ("F32", x_scale),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    write_oracle(target or FOLDER, target / "manifest.json" if target else MANIFEST)

"""Seeded bugs: each is an exact edit of the product's source, and the battery that the source passes catches every one."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import attrs
import pytest
from tensorhub_cuda.catalog import KERNELS, Kernel, kernel

from tests.kernels.emulator.emulator import Emulator, EmulatorError, build_variants, product_emulator, product_sources
from tests.kernels.support.battery import check_kernel


@attrs.frozen
class Mutant:
    """A bug: the kernel that has it, the file, and what stands in the place of what. A text that occurs more than once is
    replaced everywhere."""

    bug: str
    kernel: str
    file: str
    edits: tuple[tuple[str, str], ...]


SMALL_M8 = "block_fp8_w8a16_small_m8"
SMALL_M16 = "block_fp8_w8a16_small_m16"
TILE = "block_fp8_w8a16_tile"
W8A8 = "block_fp8_w8a8_tile"
W8A32 = "block_fp8_w8a32_tile"
QUANTIZE = "quantize_activations"


def of_scaled_linear(bug: str, kernel_name: str, old: str, new: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(bug, kernel_name, "scaled_linear.cuh", ((old, new), *edits))


def of_w8a32(bug: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(bug, W8A32, "block_fp8_w8a32.cu", edits)


def of_small_m(bug: str, old: str, new: str, kernel_name: str = SMALL_M8) -> Mutant:
    return Mutant(bug, kernel_name, "block_fp8_w8a16_small_m.cu", ((old, new),))


def of_tile(bug: str, *edits: tuple[str, str], kernel_name: str = TILE) -> Mutant:
    return Mutant(bug, kernel_name, "matrix_tile.cuh", edits)


def of_quantization(bug: str, old: str, new: str) -> Mutant:
    return Mutant(bug, QUANTIZE, "quantize_activations.cu", ((old, new),))


MUTANTS = [
    # What all matrix kernels share.
    of_scaled_linear(
        "scale_rows ignored",
        W8A32,
        "linear.scale_rows != nullptr ? load_i32(linear.scale_rows + n) : n >> linear.scale_row_shift",
        "n >> linear.scale_row_shift",
    ),
    of_scaled_linear(
        "scale grid transposed",
        TILE,
        "(i64)row * linear.scale_stride",
        "row",
        ("(i64)block * linear.scale_column_step", "(i64)block * linear.scale_stride"),
    ),
    of_scaled_linear("column step of the row grid ignored", SMALL_M8, "(i64)block * linear.scale_column_step", "block"),
    of_scaled_linear(
        "blocks of 256 in the scale grid", W8A8, "(i64)block * linear.scale_column_step", "(block / 2) * linear.scale_column_step"
    ),
    of_scaled_linear("K tail of codes unmasked", SMALL_M8, "if (k + i < k_end) {\n      words[i >> 2]", "if (true) {\n      words[i >> 2]"),
    of_scaled_linear("vector of codes past k", W8A32, "aligned && k + 16 <= k_end", "aligned"),
    of_scaled_linear("alignment without the stride", SMALL_M8, "(u64)matrix | (u64)stride_bytes", "(u64)matrix"),
    of_scaled_linear("alignment without the pointer", W8A32, "(u64)matrix | (u64)stride_bytes", "(u64)stride_bytes"),
    of_scaled_linear("32-bit offset of y", TILE, "(i64)m * linear.n + n, sum", "(int)((u32)m * (u32)linear.n + n), sum"),
    of_scaled_linear("32-bit offset of F32 y", W8A32, "((i64)m * linear.n + n)", "(int)((u32)m * (u32)linear.n + n)"),
    of_scaled_linear("bias of the token", SMALL_M8, "(const u16*)linear.bias + n", "(const u16*)linear.bias + m"),
    of_scaled_linear("bias ignored", W8A32, "if (linear.bias != nullptr)", "if (false)"),
    of_scaled_linear("last block of k dropped", W8A8, "(linear.k + BLOCK_K - 1) / BLOCK_K", "linear.k / BLOCK_K"),
    # The SIMT tile.
    of_w8a32("no barrier before the sums", ("__syncthreads();\n      // Positions", "// Positions")),
    of_w8a32("no barrier after the sums", ("        }\n      }\n      __syncthreads();", "        }\n      }")),
    of_w8a32(
        "product rounded before it is added",
        ("__fmaf_rn(x_values[i], weight_values[j], part", "__fadd_rn(x_values[i] * weight_values[j], part"),
    ),
    of_w8a32(
        "k descending",
        ("x_tile + step * X", "x_tile + (steps - 1 - step) * X"),
        ("weight_tile + step * W", "weight_tile + (steps - 1 - step) * W"),
    ),
    of_w8a32("positions past k multiplied as zeros", ("min(STEP_K, k_end - k_first)", "STEP_K")),
    of_w8a32(
        "bias added in each block",
        ("block_scale, sum[i][j]);", "block_scale, sum[i][j]) + (bias ? load_f32((const float*)bias + column) : 0);"),
    ),
    of_w8a32(
        "accumulator kept across blocks",
        ("part[i][j] = 0.f;", "if (block == 0) part[i][j] = 0.f;"),
        ("    float part[4][4];", "    static thread_local float parts[128][4][4];\n    float(&part)[4][4] = parts[threadIdx.x];"),
    ),
    of_w8a32("x_stride ignored", ("(i64)(m_first + m) * linear.x_stride", "(i64)(m_first + m) * linear.k")),
    of_w8a32("32-bit offset of x", ("(i64)(m_first + m) * linear.x_stride", "(int)((u32)(m_first + m) * (u32)linear.x_stride)")),
    # Few tokens.
    of_small_m("scale row of the upper half for both", "row_live[half] ? n : linear.n - 1", "row_live[0] ? n_first + group : linear.n - 1"),
    of_small_m("scale of the first block for all", "scale_of_block(linear, scales[0], block)", "scale_of_block(linear, scales[0], 0)"),
    of_small_m("one warp left out of the sum", "int other = 0; other < WARPS", "int other = 1; other < WARPS"),
    of_small_m("no barrier before the sum of the warps", "  __syncthreads();\n", ""),
    of_small_m("divergent barrier", "  __syncthreads();\n", "  if (warp < 3) __syncthreads();\n"),
    of_small_m("store past n", "if (m < linear.m && n < linear.n)", "if (m < linear.m)"),
    of_small_m("store past m", "if (m < linear.m && n < linear.n)", "if (n < linear.n)", SMALL_M16),
    of_small_m("load of tokens past m", "m < linear.m, x_aligned", "true, x_aligned", SMALL_M16),
    of_small_m("x_stride ignored", "(i64)m * linear.x_stride", "(i64)m * linear.k"),
    of_small_m("weight_stride ignored", "(i64)n * linear.weight_stride", "(i64)n * linear.k"),
    of_small_m("32-bit offset of weight", "(i64)n * linear.weight_stride", "(int)((u32)n * (u32)linear.weight_stride)"),
    of_small_m("divergent matrix instruction", "          mma_bf16", "          if (row_live[1]) mma_bf16"),
    of_small_m("second group of tokens is the first", "m_first + tokens * TOKENS + group", "m_first + group", SMALL_M16),
    of_small_m("warps take some blocks twice", "block += WARPS", "block += WARPS - 1"),
    # The tile of matrix instructions.
    of_tile("wait for copies off by one", ("copy_wait<STAGES - 2>", "copy_wait<STAGES - 1>")),
    of_tile("no barrier in the ring", ("    __syncthreads();\n", "")),
    of_tile("stage filled while it is read", ("coming % STAGES", "(coming + 1) % STAGES")),
    of_tile(
        "no group for blocks past the last",
        ("    }\n    copy_commit();\n    Accumulators", "      copy_commit();\n    }\n    Accumulators"),
    ),
    of_tile("K tail of weight unmasked", ("n_first + row < linear.n && k < linear.k", "n_first + row < linear.n")),
    of_tile("K tail of x unmasked", ("m_first + row < linear.m && k < linear.k", "m_first + row < linear.m"), kernel_name=W8A8),
    of_tile("reciprocal scale", ("part[i][j][e], upper_scale", "part[i][j][e], 1.f / upper_scale")),
    of_tile("scale row of the tile's first", ("scales_of_row(linear, n)", "scales_of_row(linear, n_lane)")),
    of_tile("x_scale of the first block", ("blocks_of_k(linear) + block)", "blocks_of_k(linear))"), kernel_name=W8A8),
    of_tile("x_scale of the upper token for both", ("x_scale[i][1], scale", "x_scale[i][0], scale"), kernel_name=W8A8),
    of_tile(
        "accumulator kept across blocks",
        ("part[i][j][e] = 0.f;", ""),
        ("    Accumulators<X_BYTES> part;\n", ""),
        (
            "  for (int block = 0; block < blocks; block++) {",
            "  Accumulators<X_BYTES> part = {};\n  for (int block = 0; block < blocks; block++) {",
        ),
    ),
    of_tile(
        "pieces exchanged on one side only", ("stage + row * X_PITCH + place, source", "stage + row * X_PITCH + piece * PIECE, source")
    ),
    of_tile("store past n", ("if (m < linear.m && n < linear.n)", "if (m < linear.m)")),
    of_tile("store past m", ("if (m < linear.m && n < linear.n)", "if (n < linear.n)"), kernel_name=W8A8),
    of_tile("x_stride ignored", ("(i64)(m_first + row) * linear.x_stride", "(i64)(m_first + row) * linear.k")),
    of_tile(
        "32-bit offset of weight",
        ("(i64)(n_first + row) * linear.weight_stride + k", "(int)((u32)(n_first + row) * (u32)linear.weight_stride + k)"),
        kernel_name=W8A8,
    ),
    # Quantization.
    of_quantization(
        "reciprocal product in place of a division", "__fdiv_rn(values[0], scale)", "__fmul_rn(values[0], __fdiv_rn(1.f, scale))"
    ),
    of_quantization("negative values not seen", "fabsf(values[0])", "values[0]"),
    of_quantization("half of the group not seen", "distance = 16", "distance = 8"),
    of_quantization("zeros divided by zero", "fmaxf(largest, 1e-12f)", "largest"),
    of_quantization("bytes past k", "if (k_lane + i < k) {", "if (true) {"),
    of_quantization("vector load past k", "aligned && k + 4 <= k_end", "aligned"),
    of_quantization("32-bit offset of x", "(i64)token * x_stride", "(int)((u32)token * (u32)x_stride)"),
]


@functools.cache
def mutants_of(chosen: Kernel) -> Emulator:
    """Build a kernel's source as it is, and each of its mutants, into one library."""
    variants = {"original": product_sources([chosen])}
    for index, mutant in enumerate(MUTANTS):
        if mutant.kernel == chosen.name:
            variants[f"mutant{index}"] = mutated(product_sources([chosen]), mutant)
    with tempfile.TemporaryDirectory(prefix="tensorhub-mutants-") as folder:
        return Emulator(build_variants(Path(folder), variants))


def mutated(sources: dict[str, str], mutant: Mutant) -> dict[str, str]:
    for old, new in mutant.edits:
        assert old in sources[mutant.file], f"the text to edit is not in {mutant.file} any more: {old}"
        sources[mutant.file] = sources[mutant.file].replace(old, new)
    return sources


def run_battery(chosen: Kernel, variant: str) -> None:
    """The product's own kernel quantizes the activations, except in the battery of that one."""
    check_kernel(mutants_of(chosen), attrs.evolve(chosen, name=f"{variant}::{chosen.name}"), product_emulator())


@pytest.mark.parametrize("index", range(len(MUTANTS)), ids=[f"{mutant.kernel}: {mutant.bug}" for mutant in MUTANTS])
def test_a_seeded_bug_is_caught(index: int) -> None:
    with pytest.raises((AssertionError, EmulatorError)) as caught:
        run_battery(kernel(MUTANTS[index].kernel), f"mutant{index}")
    print(str(caught.value) or caught.traceback[-1].statement)


@pytest.mark.parametrize("chosen", KERNELS, ids=lambda chosen: chosen.name)
def test_the_source_itself_passes(chosen: Kernel) -> None:
    """The control: built the same way, without an edit."""
    run_battery(chosen, "original")

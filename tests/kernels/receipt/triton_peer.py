"""The block-FP8 matrix product that is common in Triton, after fp8_gemm of DeepSeek-V3's published inference code: a peer, no reference.

One program a tile of y; a step of 128 of K is one product of E4M3, whose F32 result is scaled and added.
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
        for block_m, block_n, stages, warps in ((16, 64, 4, 4), (16, 128, 4, 4), (64, 128, 4, 8), (128, 128, 3, 8))
    ],
    key=["m_bucket", "n", "k"],
)
@triton.jit
def _kernel(x, weight, y, x_scale, w_scale, m, n, k, m_bucket, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # noqa: N803  Triton's names
    BLOCK_K: tl.constexpr = 128  # noqa: N806  likewise
    blocks_k = tl.cdiv(k, BLOCK_K)
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    columns = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    inner = tl.arange(0, BLOCK_K)
    x_at = x + rows[:, None] * k + inner[None, :]
    weight_at = weight + columns[None, :] * k + inner[:, None]
    x_scale_at = x_scale + rows * blocks_k
    w_scale_at = w_scale + (columns // BLOCK_K) * blocks_k
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(blocks_k):
        left = tl.load(x_at, mask=inner[None, :] < k - block * BLOCK_K, other=0.0)
        right = tl.load(weight_at, mask=inner[:, None] < k - block * BLOCK_K, other=0.0)
        total += tl.dot(left, right) * tl.load(x_scale_at)[:, None] * tl.load(w_scale_at)[None, :]
        x_at += BLOCK_K
        weight_at += BLOCK_K
        x_scale_at += 1
        w_scale_at += 1
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(y + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)


def block_fp8_matmul(x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, w_scale: torch.Tensor) -> torch.Tensor:
    """Return x [m, k] times weight [n, k] transposed, both E4M3, with scales [m, k / 128] and [n / 128, k / 128], as BF16."""
    (m, k), n = x.shape, weight.shape[0]
    y = x.new_empty((m, n), dtype=torch.bfloat16)

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"])

    _kernel[grid](x, weight, y, x_scale, w_scale, m, n, k, triton.next_power_of_2(m))
    return y

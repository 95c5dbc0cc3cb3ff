// w8a16 for few tokens: BF16 activations, weight decoded to BF16 exactly, F32 sums on the matrix units, BF16 output.
// sm_80.
//
// With few tokens the time is that of reading the weight once. So the weight is the matrix instruction's operand of 16
// rows and the tokens are its 8 columns (y transposed = weight x transposed), and weight goes from global memory to
// registers without a stop in shared memory. A thread block makes 16 rows of weight by 8 or 16 tokens; blockIdx.y
// counts further tokens.
//
// Layout. The instruction wants pairs of k from each lane; the sum does not care which k they are as long as weight and
// x agree. So k is permuted: in a half block of 64, the member-th lane of a group of four holds the 16 codes (and the
// 16 BF16) from 16 * member on, which are 16 contiguous bytes of weight and 32 of x: one load and two. Instruction
// `step` takes codes 4 * step to 4 * step + 3 of each lane.
//
// Order. The 4 warps take the blocks of 128 of k in turn: block b is warp b % 4's. A part (one block) is summed by the
// matrix unit from zero, then sum = fma(part, scale, sum), blocks ascending. At the end the sums of the warps are added
// in the order ((0 + warp 0) + warp 1) + ..., so a result does not depend on which warp is first.

namespace small_m {

constexpr int WARPS = 4;
constexpr int TILE_N = 16;
constexpr int TOKENS = 8;  // columns of one matrix instruction

// partial_sums[WARPS][TOKEN_GROUPS][4][32]: a lane's four results are 32 floats apart, so a warp stores without bank
// conflicts.
template <int TOKEN_GROUPS>
DEVICE void multiply(const ScaledLinear& linear, float* partial_sums) {
  const int warp = threadIdx.x >> 5;
  const int lane = threadIdx.x & 31;
  const int group = lane >> 2;
  const int member = lane & 3;
  const int m_first = blockIdx.y * (TOKEN_GROUPS * TOKENS);
  const int n_first = blockIdx.x * TILE_N;
  const int k_end = linear.k;
  const bool weight_aligned = rows_are_aligned(linear.weight, linear.weight_stride);
  const bool x_aligned = rows_are_aligned(linear.x, linear.x_stride * 2);

  // A lane reads two rows of weight: group and group + 8 of the tile. A row past n is zero, and takes the last row's
  // scale.
  bool row_live[2];
  const u8* row[2];
  const float* scales[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int n = n_first + group + half * 8;
    row_live[half] = n < linear.n;
    row[half] = linear.weight + (i64)n * linear.weight_stride;
    scales[half] = scales_of_row(linear, row_live[half] ? n : linear.n - 1);
  }

  float sum[TOKEN_GROUPS][4];
#pragma unroll
  for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[tokens][i] = 0.f;
    }
  }

  for (int block = warp; block < blocks_of_k(linear); block += WARPS) {
    uint4 codes[2][2];  // [half of the block][row]
#pragma unroll
    for (int half_block = 0; half_block < 2; half_block++) {
      const int k = block * BLOCK_K + half_block * 64 + member * 16;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        codes[half_block][half] = load_codes_16(row[half], k, k_end, row_live[half], weight_aligned);
      }
    }
    float part[TOKEN_GROUPS][4];
#pragma unroll
    for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        part[tokens][i] = 0.f;
      }
    }
#pragma unroll
    for (int half_block = 0; half_block < 2; half_block++) {
      const int k = block * BLOCK_K + half_block * 64 + member * 16;
      u32 x_pairs[TOKEN_GROUPS][8];
#pragma unroll
      for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
        const int m = m_first + tokens * TOKENS + group;
        const u16* token = (const u16*)linear.x + (i64)m * linear.x_stride;
        const uint4 first = load_bf16_8(token, k, k_end, m < linear.m, x_aligned);
        const uint4 second = load_bf16_8(token, k + 8, k_end, m < linear.m, x_aligned);
        x_pairs[tokens][0] = first.x;
        x_pairs[tokens][1] = first.y;
        x_pairs[tokens][2] = first.z;
        x_pairs[tokens][3] = first.w;
        x_pairs[tokens][4] = second.x;
        x_pairs[tokens][5] = second.y;
        x_pairs[tokens][6] = second.z;
        x_pairs[tokens][7] = second.w;
      }
      const u32 upper[4] = {codes[half_block][0].x, codes[half_block][0].y, codes[half_block][0].z, codes[half_block][0].w};
      const u32 lower[4] = {codes[half_block][1].x, codes[half_block][1].y, codes[half_block][1].z, codes[half_block][1].w};
#pragma unroll
      for (int step = 0; step < 4; step++) {
        u32 a0, a1, a2, a3;
        e4m3x4_to_bf16x4(upper[step], a0, a2);
        e4m3x4_to_bf16x4(lower[step], a1, a3);
#pragma unroll
        for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
          mma_bf16_m16n8k16(part[tokens], a0, a1, a2, a3, x_pairs[tokens][2 * step], x_pairs[tokens][2 * step + 1]);
        }
      }
    }
    const float upper_scale = scale_of_block(linear, scales[0], block);
    const float lower_scale = scale_of_block(linear, scales[1], block);
#pragma unroll
    for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
      sum[tokens][0] = __fmaf_rn(part[tokens][0], upper_scale, sum[tokens][0]);
      sum[tokens][1] = __fmaf_rn(part[tokens][1], upper_scale, sum[tokens][1]);
      sum[tokens][2] = __fmaf_rn(part[tokens][2], lower_scale, sum[tokens][2]);
      sum[tokens][3] = __fmaf_rn(part[tokens][3], lower_scale, sum[tokens][3]);
    }
  }

#pragma unroll
  for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      shared_store_f32(partial_sums + ((warp * TOKEN_GROUPS + tokens) * 4 + i) * 32 + lane, sum[tokens][i]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int tokens = 0; tokens < TOKEN_GROUPS; tokens++) {
    // Each warp finishes one of the four results of every lane.
    const int i = warp;
    float total = 0.f;
#pragma unroll
    for (int other = 0; other < WARPS; other++) {
      total = __fadd_rn(total, shared_load_f32(partial_sums + ((other * TOKEN_GROUPS + tokens) * 4 + i) * 32 + lane));
    }
    const int n = n_first + group + (i >> 1) * 8;
    const int m = m_first + tokens * TOKENS + 2 * member + (i & 1);
    if (m < linear.m && n < linear.n) {
      store_output_bf16(linear, m, n, total);
    }
  }
}

}  // namespace small_m

KERNEL(128) block_fp8_w8a16_small_m8(SCALED_LINEAR_PARAMETERS) {
  DYNAMIC_SHARED(shared);
  small_m::multiply<1>(SCALED_LINEAR_ARGUMENTS, (float*)shared);
}

KERNEL(128) block_fp8_w8a16_small_m16(SCALED_LINEAR_PARAMETERS) {
  DYNAMIC_SHARED(shared);
  small_m::multiply<2>(SCALED_LINEAR_ARGUMENTS, (float*)shared);
}

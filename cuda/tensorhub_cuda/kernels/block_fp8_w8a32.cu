// w8a32: F32 activations, F32 products and sums on the ordinary units, F32 output. sm_75.
//
// The order of every sum is specified, so that a scalar loop gives the same bits on any machine:
//   for each block of 128 of k, ascending:
//     part = 0
//     for each k of the block, ascending: part = fma(x[m, k], value(weight[n, k]), part)
//     sum = fma(part, scale(n, block), sum)
//   y = sum, or sum + bias with one addition
//
// A thread block of 128 threads makes a tile of 32 tokens by 64 rows of weight, in steps of 32 of k. Each step puts x
// and the decoded weight into shared memory, transposed: x_tile[k][m], weight_tile[k][n], so that a thread reads its 4
// tokens and its 4 rows of weight with one 16-byte load each, for 16 fma. A row of a tile is 4 floats longer than its
// content, which keeps the 16 bytes aligned. While storing, the 32 lanes of a warp hold 32 different m (or n) of the
// same k: no bank conflicts.

namespace w8a32 {

constexpr int THREADS = 128;
constexpr int TILE_M = 32;
constexpr int TILE_N = 64;
constexpr int STEP_K = 32;
constexpr int X_PITCH = TILE_M + 4;
constexpr int WEIGHT_PITCH = TILE_N + 4;

// x_tile[STEP_K][X_PITCH]: two loads of 4 floats a thread.
DEVICE void fill_x_tile(const ScaledLinear& linear, float* x_tile, int m_first, int k_first, bool aligned) {
  const int m = threadIdx.x % TILE_M;
  const bool live = m_first + m < linear.m;
  const float* row = (const float*)linear.x + (i64)(m_first + m) * linear.x_stride;
#pragma unroll
  for (int round = 0; round < 2; round++) {
    const int k = (threadIdx.x / TILE_M + round * (THREADS / TILE_M)) * 4;
    float4 values = load_f32_4(row, k_first + k, linear.k, live, aligned);
    shared_store_f32(x_tile + (k + 0) * X_PITCH + m, values.x);
    shared_store_f32(x_tile + (k + 1) * X_PITCH + m, values.y);
    shared_store_f32(x_tile + (k + 2) * X_PITCH + m, values.z);
    shared_store_f32(x_tile + (k + 3) * X_PITCH + m, values.w);
  }
}

// weight_tile[STEP_K][WEIGHT_PITCH]: one load of 16 codes a thread.
DEVICE void fill_weight_tile(const ScaledLinear& linear, float* weight_tile, int n_first, int k_first, bool aligned) {
  const int n = threadIdx.x % TILE_N;
  const int k = (threadIdx.x / TILE_N) * 16;
  const bool live = n_first + n < linear.n;
  const u8* row = linear.weight + (i64)(n_first + n) * linear.weight_stride;
  uint4 codes = load_codes_16(row, k_first + k, linear.k, live, aligned);
  const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < 16; i++) {
    shared_store_f32(weight_tile + (k + i) * WEIGHT_PITCH + n, e4m3_to_f32((words[i >> 2] >> (8 * (i & 3))) & 0xffu));
  }
}

}  // namespace w8a32

KERNEL(128) block_fp8_w8a32_tile(SCALED_LINEAR_PARAMETERS) {
  using namespace w8a32;
  DYNAMIC_SHARED(shared);
  const ScaledLinear linear = SCALED_LINEAR_ARGUMENTS;
  float* x_tile = (float*)shared;
  float* weight_tile = x_tile + STEP_K * X_PITCH;
  const int m_first = blockIdx.y * TILE_M;
  const int n_first = blockIdx.x * TILE_N;
  const int m_thread = (threadIdx.x / 16) * 4;
  const int n_thread = (threadIdx.x % 16) * 4;
  const bool x_aligned = rows_are_aligned(x, x_stride * 4);
  const bool weight_aligned = rows_are_aligned(weight, weight_stride);

  float sum[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      sum[i][j] = 0.f;
    }
  }

  for (int block = 0; block < blocks_of_k(linear); block++) {
    float part[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        part[i][j] = 0.f;
      }
    }
    const int k_end = min(k, (block + 1) * BLOCK_K);
    for (int k_first = block * BLOCK_K; k_first < k_end; k_first += STEP_K) {
      fill_x_tile(linear, x_tile, m_first, k_first, x_aligned);
      fill_weight_tile(linear, weight_tile, n_first, k_first, weight_aligned);
      __syncthreads();
      // Positions past k are left out, not multiplied as zeros: fma(0, 0, -0) would turn a -0 into +0.
      const int steps = min(STEP_K, k_end - k_first);
#pragma unroll 8
      for (int step = 0; step < steps; step++) {
        const float4 x4 = shared_load_f32x4(x_tile + step * X_PITCH + m_thread);
        const float4 weight4 = shared_load_f32x4(weight_tile + step * WEIGHT_PITCH + n_thread);
        const float x_values[4] = {x4.x, x4.y, x4.z, x4.w};
        const float weight_values[4] = {weight4.x, weight4.y, weight4.z, weight4.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            part[i][j] = __fmaf_rn(x_values[i], weight_values[j], part[i][j]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      // A row past n is not stored, and takes the last one's scale.
      const int column = min(n_first + n_thread + j, n - 1);
      const float block_scale = scale_of_block(linear, scales_of_row(linear, column), block);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        sum[i][j] = __fmaf_rn(part[i][j], block_scale, sum[i][j]);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = m_first + m_thread + i;
      const int column = n_first + n_thread + j;
      if (row < m && column < n) {
        store_output_f32(linear, row, column, sum[i][j]);
      }
    }
  }
}

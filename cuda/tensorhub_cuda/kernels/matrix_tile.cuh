// A tile of 64 tokens by 128 rows of weight, on the matrix units: for BF16 activations (sm_80) and e4m3 ones (sm_89).
//
// For BF16 activations 4 warps, side by side over the rows of weight: each makes 64 x 32, so that a code is decoded
// once. For e4m3 ones 2 x 4 warps of 32 x 32, because architectures that carry out that instruction as a BF16 one need
// registers for it. Weight and x of the coming blocks of 128 of k are copied into a ring of 3 stages of shared memory
// while one is computed. x is the instruction's operand of 16 rows, weight its 8 columns. k is a multiple of 16, and
// rows of weight and x begin on 16 bytes, so that each piece of 16 bytes is within k or past it.
//
// A stage: x_stage[64][256 or 128 bytes], then weight_stage[128][128 bytes]. Pieces of 16 bytes are exchanged within an
// odd row (an exclusive or of the piece's number), so that the 8 lanes that are served at a time, two rows of four, use
// all banks once.
//
// As in the kernel for few tokens, k is permuted alike for both operands: in a half block of 64, the member-th lane of
// a group of four holds the 16 positions from 16 * member on.
//
// Order. One block of 128 of k is summed by the matrix unit from zero; then sum = fma(part, scale, sum), blocks
// ascending. For e4m3 activations the scale is x_scale * scale, rounded once.

namespace matrix_tile {

constexpr int TILE_M = 64;
constexpr int TILE_N = 128;
constexpr int STAGES = 3;
constexpr int PIECE = 16;  // bytes of one copy
constexpr int WEIGHT_PITCH = BLOCK_K;
constexpr int WEIGHT_STAGE = TILE_N * WEIGHT_PITCH;

// `X_BYTES`: of one activation.
template <int X_BYTES>
struct Layout {
  static constexpr int X_PITCH = BLOCK_K * X_BYTES;
  static constexpr int X_STAGE = TILE_M * X_PITCH;
  static constexpr int STAGE = X_STAGE + WEIGHT_STAGE;
  static constexpr int WARPS_OVER_M = X_BYTES == 1 ? 2 : 1;
  static constexpr int THREADS = WARPS_OVER_M * 128;
  static constexpr int WARP_M = TILE_M / WARPS_OVER_M;
  static constexpr int M_STEPS = WARP_M / 16;  // instructions of a warp over its tokens; over its rows of weight there are 4
};

// Of one warp: [tokens / 16][rows of weight / 8][results of the instruction].
template <int X_BYTES>
using Accumulators = float[Layout<X_BYTES>::M_STEPS][4][4];

// Where a piece lies in a row of 128 bytes, and in one of 256.
DEVICE int place_in_128(int row, int piece) {
  return (piece ^ ((row & 1) << 2)) * PIECE;
}

DEVICE int place_in_256(int row, int piece) {
  return (piece ^ (row & 1)) * PIECE;
}

template <int X_BYTES>
DEVICE void fill_stage(const ScaledLinear& linear, u8* stage, int m_first, int n_first, int k_first) {
  constexpr int X_PITCH = Layout<X_BYTES>::X_PITCH;
  constexpr int X_PIECES = X_PITCH / PIECE;
  for (int i = threadIdx.x; i < TILE_M * X_PIECES; i += Layout<X_BYTES>::THREADS) {
    const int row = i / X_PIECES;
    const int piece = i % X_PIECES;
    const int k = k_first + piece * (PIECE / X_BYTES);
    const bool live = m_first + row < linear.m && k < linear.k;
    const u8* source = (const u8*)linear.x + (live ? ((i64)(m_first + row) * linear.x_stride + k) * X_BYTES : 0);
    const int place = X_BYTES == 1 ? place_in_128(row, piece) : place_in_256(row, piece);
    copy_16_bytes_async(stage + row * X_PITCH + place, source, live ? PIECE : 0);
  }
  u8* weight_stage = stage + Layout<X_BYTES>::X_STAGE;
  for (int i = threadIdx.x; i < TILE_N * (WEIGHT_PITCH / PIECE); i += Layout<X_BYTES>::THREADS) {
    const int row = i / (WEIGHT_PITCH / PIECE);
    const int piece = i % (WEIGHT_PITCH / PIECE);
    const int k = k_first + piece * PIECE;
    const bool live = n_first + row < linear.n && k < linear.k;
    const u8* source = linear.weight + (live ? (i64)(n_first + row) * linear.weight_stride + k : 0);
    copy_16_bytes_async(weight_stage + row * WEIGHT_PITCH + place_in_128(row, piece), source, live ? PIECE : 0);
  }
}

// The first row of x that a lane holds, and the first row of weight of its warp, within the tile.
template <int X_BYTES>
DEVICE int x_row_of_lane() {
  return ((threadIdx.x >> 5) / 4) * Layout<X_BYTES>::WARP_M + ((threadIdx.x & 31) >> 2);
}

DEVICE int weight_row_of_warp() {
  return ((threadIdx.x >> 5) % 4) * 32;
}

DEVICE void unpack(uint4 value, u32* words) {
  words[0] = value.x;
  words[1] = value.y;
  words[2] = value.z;
  words[3] = value.w;
}

// part += half a block, BF16 activations: the weight is decoded on its way to the matrix unit.
DEVICE void multiply_half_block_bf16(Accumulators<2>& part, const u8* x_stage, const u32 (&codes)[4][4], int half_block) {
  const int row_lane = x_row_of_lane<2>();
  const int member = threadIdx.x & 3;
#pragma unroll
  for (int octet = 0; octet < 2; octet++) {  // 16 bytes: 8 of the lane's 16 activations
    u32 x_pairs[4][2][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = row_lane + i * 16 + half * 8;
        const int place = place_in_256(row, half_block * 8 + member * 2 + octet);
        unpack(shared_load_16_bytes(x_stage + row * Layout<2>::X_PITCH + place), x_pairs[i][half]);
      }
    }
#pragma unroll
    for (int step = 0; step < 2; step++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        u32 b0, b1;
        e4m3x4_to_bf16x4(codes[j][2 * octet + step], b0, b1);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          mma_bf16_m16n8k16(part[i][j], x_pairs[i][0][2 * step], x_pairs[i][1][2 * step], x_pairs[i][0][2 * step + 1],
                            x_pairs[i][1][2 * step + 1], b0, b1);
        }
      }
    }
  }
}

// part += half a block, e4m3 activations.
DEVICE void multiply_half_block_e4m3(Accumulators<1>& part, const u8* x_stage, const u32 (&codes)[4][4], int half_block) {
  const int row_lane = x_row_of_lane<1>();
  const int member = threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 x_codes[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = row_lane + i * 16 + half * 8;
      const int place = place_in_128(row, half_block * 4 + member);
      unpack(shared_load_16_bytes(x_stage + row * Layout<1>::X_PITCH + place), x_codes[half]);
    }
#pragma unroll
    for (int step = 0; step < 2; step++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        mma_e4m3_m16n8k32(part[i][j], x_codes[0][2 * step], x_codes[1][2 * step], x_codes[0][2 * step + 1],
                          x_codes[1][2 * step + 1], codes[j][2 * step], codes[j][2 * step + 1]);
      }
    }
  }
}

// part = one block, from zero.
template <int X_BYTES>
DEVICE void multiply_block(Accumulators<X_BYTES>& part, const u8* stage) {
  const int group = (threadIdx.x & 31) >> 2;
  const int member = threadIdx.x & 3;
  const u8* weight_stage = stage + Layout<X_BYTES>::X_STAGE;
#pragma unroll
  for (int i = 0; i < Layout<X_BYTES>::M_STEPS; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        part[i][j][e] = 0.f;
      }
    }
  }
#pragma unroll
  for (int half_block = 0; half_block < 2; half_block++) {
    u32 codes[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int row = weight_row_of_warp() + j * 8 + group;
      const int place = place_in_128(row, half_block * 4 + member);
      unpack(shared_load_16_bytes(weight_stage + row * WEIGHT_PITCH + place), codes[j]);
    }
    if constexpr (X_BYTES == 2) {
      multiply_half_block_bf16(part, stage, codes, half_block);
    } else {
      multiply_half_block_e4m3(part, stage, codes, half_block);
    }
  }
}

// sum = fma(part, scale, sum). A row past m or n is not stored, and takes the last one's scale.
template <int X_BYTES>
DEVICE void add_scaled(Accumulators<X_BYTES>& sum, const Accumulators<X_BYTES>& part, const ScaledLinear& linear,
                       int m_lane, int n_lane, int block) {
  float x_scale[Layout<X_BYTES>::M_STEPS][2];
  if constexpr (X_BYTES == 1) {
#pragma unroll
    for (int i = 0; i < Layout<X_BYTES>::M_STEPS; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int m = min(m_lane + i * 16 + half * 8, linear.m - 1);
        x_scale[i][half] = load_f32(linear.x_scale + (i64)m * blocks_of_k(linear) + block);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int n = min(n_lane + j * 8 + e, linear.n - 1);
      const float scale = scale_of_block(linear, scales_of_row(linear, n), block);
#pragma unroll
      for (int i = 0; i < Layout<X_BYTES>::M_STEPS; i++) {
        float upper_scale = scale;
        float lower_scale = scale;
        if constexpr (X_BYTES == 1) {
          upper_scale = __fmul_rn(x_scale[i][0], scale);
          lower_scale = __fmul_rn(x_scale[i][1], scale);
        }
        sum[i][j][e] = __fmaf_rn(part[i][j][e], upper_scale, sum[i][j][e]);
        sum[i][j][2 + e] = __fmaf_rn(part[i][j][2 + e], lower_scale, sum[i][j][2 + e]);
      }
    }
  }
}

template <int X_BYTES>
DEVICE void multiply(const ScaledLinear& linear, u8* shared) {
  const int m_first = blockIdx.y * TILE_M;
  const int n_first = blockIdx.x * TILE_N;
  const int m_lane = m_first + x_row_of_lane<X_BYTES>();
  const int n_lane = n_first + weight_row_of_warp() + 2 * (threadIdx.x & 3);
  const int blocks = blocks_of_k(linear);
  Accumulators<X_BYTES> sum;
#pragma unroll
  for (int i = 0; i < Layout<X_BYTES>::M_STEPS; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        sum[i][j][e] = 0.f;
      }
    }
  }

#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) {
    if (stage < blocks) {
      fill_stage<X_BYTES>(linear, shared + stage * Layout<X_BYTES>::STAGE, m_first, n_first, stage * BLOCK_K);
    }
    copy_commit();
  }
  for (int block = 0; block < blocks; block++) {
    // A group is committed for every block, also an empty one, so that the oldest of STAGES - 1 groups is this block's.
    copy_wait<STAGES - 2>();
    // After it, every thread's copies of this block are visible, and none reads the stage that is filled next.
    __syncthreads();
    const int coming = block + STAGES - 1;
    if (coming < blocks) {
      fill_stage<X_BYTES>(linear, shared + (coming % STAGES) * Layout<X_BYTES>::STAGE, m_first, n_first, coming * BLOCK_K);
    }
    copy_commit();
    Accumulators<X_BYTES> part;
    multiply_block<X_BYTES>(part, shared + (block % STAGES) * Layout<X_BYTES>::STAGE);
    add_scaled<X_BYTES>(sum, part, linear, m_lane, n_lane, block);
  }

#pragma unroll
  for (int i = 0; i < Layout<X_BYTES>::M_STEPS; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int m = m_lane + i * 16 + (e >> 1) * 8;
        const int n = n_lane + j * 8 + (e & 1);
        if (m < linear.m && n < linear.n) {
          store_output_bf16(linear, m, n, sum[i][j][e]);
        }
      }
    }
  }
}

}  // namespace matrix_tile

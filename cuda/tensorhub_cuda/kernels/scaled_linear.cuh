// The calling convention of the matrix kernels, and what they share: the scale grid, loads guarded at tails, bias and
// output.
//
//   y[m, n] = sum over k of x[m, k] * value(weight[n, k]) * scale(n, k), and bias[n] if there is one
//
// weight  codes [n, k], a row every `weight_stride` bytes        scale_rows  [n], or null: the grid's row of each row of weight
// x       [m, k], a row every `x_stride` elements                x_scale     [m, ceil(k / 128)], or null
// scale   the grid, a row every `scale_stride` elements          bias        [n] in the dtype of y, or null
// y       [m, n], contiguous
//
// A block grid has one scale for 128 x 128 weights: scale_row_shift is 7 and scale_column_step 1. A row grid has one
// for a row: shift and step are 0, and the stride is 1. `scale_rows` is for tensors that were put together from
// several, or cut from one: their rows keep the blocks that they were scaled by.
//
// Every kernel sums 128 of k with F32 accumulators that start at zero, then adds that part, times its scale, to F32
// sums: so the unscaled parts of different blocks never meet, and an accumulator of less than F32 precision never gets
// long. Offsets are 64-bit: m * x_stride and n * weight_stride may pass 2^31.

constexpr int BLOCK_K = 128;

struct ScaledLinear {
  const u8* weight;
  const float* scale;
  const int* scale_rows;
  const void* x;
  const float* x_scale;
  const void* bias;
  void* y;
  i64 weight_stride;
  i64 x_stride;
  int m;
  int n;
  int k;
  int scale_stride;
  int scale_row_shift;
  int scale_column_step;
};

#define SCALED_LINEAR_PARAMETERS                                                                                      \
  const u8 *weight, const float *scale, const int *scale_rows, const void *x, const float *x_scale, const void *bias, \
      void *y, i64 weight_stride, i64 x_stride, int m, int n, int k, int scale_stride, int scale_row_shift,           \
      int scale_column_step
#define SCALED_LINEAR_ARGUMENTS                                                                             \
  ScaledLinear {                                                                                            \
    weight, scale, scale_rows, x, x_scale, bias, y, weight_stride, x_stride, m, n, k, scale_stride,         \
        scale_row_shift, scale_column_step                                                                  \
  }

DEVICE int blocks_of_k(const ScaledLinear& linear) {
  return (linear.k + BLOCK_K - 1) / BLOCK_K;
}

// The scales of one row of weight: that of block b is b * scale_column_step further.
DEVICE const float* scales_of_row(const ScaledLinear& linear, int n) {
  int row = linear.scale_rows != nullptr ? load_i32(linear.scale_rows + n) : n >> linear.scale_row_shift;
  return linear.scale + (i64)row * linear.scale_stride;
}

DEVICE float scale_of_block(const ScaledLinear& linear, const float* scales, int block) {
  return load_f32(scales + (i64)block * linear.scale_column_step);
}

// ---- Loads that give zero for what lies past k or past the last row, and do not touch it. ----

// Whether every row of a matrix begins on a multiple of 16 bytes.
DEVICE bool rows_are_aligned(const void* matrix, i64 stride_bytes) {
  return (((u64)matrix | (u64)stride_bytes) & 15) == 0;
}

// 16 codes of a row, from position k on; `aligned` allows one load for all of them.
DEVICE uint4 load_codes_16(const u8* row, int k, int k_end, bool live, bool aligned) {
  uint4 codes = {0, 0, 0, 0};
  if (!live || k >= k_end) {
    return codes;
  }
  if (aligned && k + 16 <= k_end) {
    return load_16_bytes_once(row + k);
  }
  u32 words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16; i++) {
    if (k + i < k_end) {
      words[i >> 2] |= (u32)load_u8(row + k + i) << (8 * (i & 3));
    }
  }
  codes.x = words[0];
  codes.y = words[1];
  codes.z = words[2];
  codes.w = words[3];
  return codes;
}

// 8 BF16 of a row, from position k on.
DEVICE uint4 load_bf16_8(const u16* row, int k, int k_end, bool live, bool aligned) {
  uint4 values = {0, 0, 0, 0};
  if (!live || k >= k_end) {
    return values;
  }
  if (aligned && k + 8 <= k_end) {
    return load_16_bytes(row + k);
  }
  u32 words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (k + i < k_end) {
      words[i >> 1] |= (u32)load_u16(row + k + i) << (16 * (i & 1));
    }
  }
  values.x = words[0];
  values.y = words[1];
  values.z = words[2];
  values.w = words[3];
  return values;
}

// 4 F32 of a row, from position k on.
DEVICE float4 load_f32_4(const float* row, int k, int k_end, bool live, bool aligned) {
  float4 values = {0.f, 0.f, 0.f, 0.f};
  if (!live || k >= k_end) {
    return values;
  }
  if (aligned && k + 4 <= k_end) {
    uint4 bits = load_16_bytes(row + k);
    values.x = __uint_as_float(bits.x);
    values.y = __uint_as_float(bits.y);
    values.z = __uint_as_float(bits.z);
    values.w = __uint_as_float(bits.w);
    return values;
  }
  values.x = load_f32(row + k);
  values.y = k + 1 < k_end ? load_f32(row + k + 1) : 0.f;
  values.z = k + 2 < k_end ? load_f32(row + k + 2) : 0.f;
  values.w = k + 3 < k_end ? load_f32(row + k + 3) : 0.f;
  return values;
}

// ---- Output: the bias is added in F32 after the whole sum, and then the result is rounded once. ----

DEVICE void store_output_bf16(const ScaledLinear& linear, int m, int n, float sum) {
  if (linear.bias != nullptr) {
    sum = __fadd_rn(sum, bf16_to_f32(load_u16((const u16*)linear.bias + n)));
  }
  store_rounded_to_bf16(linear.y, (i64)m * linear.n + n, sum);
}

DEVICE void store_output_f32(const ScaledLinear& linear, int m, int n, float sum) {
  if (linear.bias != nullptr) {
    sum = __fadd_rn(sum, load_f32((const float*)linear.bias + n));
  }
  store_f32((float*)linear.y + ((i64)m * linear.n + n), sum);
}

// BF16 activations to e4m3 codes with one F32 scale for each token and 128 of k. sm_89.
//
//   x_scale[m, g] = max(largest magnitude of the group, 1e-12) / 448
//   codes[m, k] = e4m3(x[m, k] / x_scale[m, k / 128])
//
// Both divisions are IEEE ones, so that the codes are the bits of a cast in another library: a product with the reciprocal
// rounds some quotients that lie between two codes the other way.
//
// Rounds to nearest even, beyond +-448 to +-448. A warp quantizes one group of a token, 4 values a lane. A thread block
// takes 4 tokens by one group, and goes on by the size of the grid: the grid is ceil(k / 128) by ceil(m / 4), or less.

namespace quantize {

constexpr int WARPS = 4;

// 4 BF16 of a row, from position k on, as F32; zero past k_end.
DEVICE void load_values(const u16* row, int k, int k_end, bool aligned, float (&values)[4]) {
  if (aligned && k + 4 <= k_end) {
    const uint2 pairs = load_8_bytes(row + k);
    values[0] = bf16_to_f32((u16)(pairs.x & 0xffffu));
    values[1] = bf16_to_f32((u16)(pairs.x >> 16));
    values[2] = bf16_to_f32((u16)(pairs.y & 0xffffu));
    values[3] = bf16_to_f32((u16)(pairs.y >> 16));
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    values[i] = k + i < k_end ? bf16_to_f32(load_u16(row + k + i)) : 0.f;
  }
}

}  // namespace quantize

KERNEL(128) quantize_activations(const void* x, u8* codes, float* x_scale, i64 x_stride, int m, int k) {
  using namespace quantize;
  const int warp = threadIdx.x >> 5;
  const int lane = threadIdx.x & 31;
  const int groups = (k + 127) / 128;
  const bool x_aligned = (((u64)x | (u64)(x_stride * 2)) & 7) == 0;
  const bool codes_aligned = (((u64)codes | (u64)k) & 3) == 0;
  // Both loops have the same count for all lanes of a warp, which the shuffles need.
  for (int token = blockIdx.y * WARPS + warp; token < m; token += gridDim.y * WARPS) {
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
      const int k_lane = group * 128 + lane * 4;
      float values[4];
      load_values((const u16*)x + (i64)token * x_stride, k_lane, k, x_aligned, values);
      float largest = fmaxf(fmaxf(fabsf(values[0]), fabsf(values[1])), fmaxf(fabsf(values[2]), fabsf(values[3])));
#pragma unroll
      for (int distance = 16; distance > 0; distance >>= 1) {
        largest = fmaxf(largest, shuffle_xor_f32(largest, distance));
      }
      const float scale = __fdiv_rn(fmaxf(largest, 1e-12f), 448.f);
      const u32 packed = f32x4_to_e4m3x4(__fdiv_rn(values[0], scale), __fdiv_rn(values[1], scale),
                                         __fdiv_rn(values[2], scale), __fdiv_rn(values[3], scale));
      u8* destination = codes + (i64)token * k + k_lane;
      if (codes_aligned && k_lane + 4 <= k) {
        store_u32((u32*)destination, packed);
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (k_lane + i < k) {
            store_u8(destination + i, (u8)(packed >> (8 * i)));
          }
        }
      }
      if (lane == 0) {
        store_f32(x_scale + (i64)token * groups + group, scale);
      }
    }
  }
}

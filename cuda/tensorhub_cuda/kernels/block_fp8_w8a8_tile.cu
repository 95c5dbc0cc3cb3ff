// w8a8: activations quantized to e4m3 for each token and 128 of k (quantize_activations.cu), F32 sums on the matrix
// units, BF16 output. Tile, layouts and order: matrix_tile.cuh. sm_89; on sm_90 and sm_100 this instruction is carried
// out as two conversions and a BF16 one, so there it saves memory and no time.
//
// Here x holds codes, contiguous rows of `x_stride` bytes, and x_scale[m, ceil(k / 128)] their scales.

KERNEL(256) block_fp8_w8a8_tile(SCALED_LINEAR_PARAMETERS) {
  DYNAMIC_SHARED(shared);
  matrix_tile::multiply<1>(SCALED_LINEAR_ARGUMENTS, shared);
}

// w8a16 for many tokens: BF16 activations, weight decoded to BF16 exactly in registers, F32 sums on the matrix units,
// BF16 output. sm_80. Tile, layouts and order: matrix_tile.cuh. This is not "decode the weight to BF16, then multiply":
// that would round weight times scale; here the scale meets the F32 sum of 128 products.

KERNEL(128) block_fp8_w8a16_tile(SCALED_LINEAR_PARAMETERS) {
  DYNAMIC_SHARED(shared);
  matrix_tile::multiply<2>(SCALED_LINEAR_ARGUMENTS, shared);
}

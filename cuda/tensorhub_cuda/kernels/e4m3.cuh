// E4M3FN codes as floating-point numbers, exactly: sign, 4 exponent bits (bias 7), 3 mantissa bits, no infinity.
//
// Both conversions put the seven bits below the sign at the same place of the wider format's exponent and mantissa.
// That is the value times 2^(7 - 127), also for subnormal codes, and one exact product with 2^120 corrects it.

// The value of a code; NaN for the codes 0x7F and 0xFF.
DEVICE float e4m3_to_f32(u32 code) {
  u32 magnitude = code & 0x7fu;
  float scaled = __uint_as_float(((code & 0x80u) << 24) | (magnitude << 20));
  float value = __fmul_rn(scaled, __uint_as_float(0x7b800000u));
  return magnitude == 0x7fu ? __uint_as_float(0x7fffffffu) : value;
}

// Four codes to two pairs of BF16; the first code is in the lowest byte, and in the low half of `first_pair`. The NaN
// codes, which are refused when a checkpoint is loaded, come out as +-480.
DEVICE void e4m3x4_to_bf16x4(u32 codes, u32& first_pair, u32& second_pair) {
  const u32 two_to_120 = 0x7b807b80u;
  const u32 minus_zero = 0x80008000u;  // as the third operand it keeps the sign of a zero
  u32 first = byte_permute(codes, 0u, 0x1404u);   // codes 0 and 1, each in the high byte of a half
  u32 second = byte_permute(codes, 0u, 0x3424u);  // codes 2 and 3
  first = (first & 0x80008000u) | ((first & 0x7f007f00u) >> 4);
  second = (second & 0x80008000u) | ((second & 0x7f007f00u) >> 4);
  first_pair = fma_bf16x2(first, two_to_120, minus_zero);
  second_pair = fma_bf16x2(second, two_to_120, minus_zero);
}
